"""A stream of messages: an Envelope a line, never more unsettled than its credit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy, Timeout
from penstock.services.mailbox.jobs import Bearings, kept

if TYPE_CHECKING:
    from penstock.services.mailbox.desk import Desk
    from penstock.services.mailbox.mailroom import Mailroom

HEARTBEAT_S: Final = 10.0
_encode: Final = msgspec.json.Encoder().encode


class Credit:
    """How many messages of a stream are unsettled; a settlement or lapse gives one back."""

    __slots__ = ("_changed", "limit", "used")

    def __init__(self, limit: int) -> None:
        """Allow so many at once."""
        self.limit = limit
        self.used = 0
        self._changed = asyncio.Event()

    @property
    def left(self) -> int:
        """Return how many more may be leased."""
        return self.limit - self.used

    def settled(self) -> None:
        """Take one back."""
        self.used -= 1
        self._changed.set()

    async def wait(self) -> bool:
        """Wait for credit; False after a heartbeat's time."""
        self._changed.clear()
        try:
            async with timeout("stream_credit", HEARTBEAT_S):
                await self._changed.wait()
        except Timeout:
            return False
        return True


class RecvStream:
    """The lines of one `/v1/recv/stream` answer."""

    def __init__(self, room: Mailroom, desk: Desk, recv: m.Recv, max_inflight: int) -> None:
        """Ask for what `recv` asks for, again and again."""
        self._room = room
        self._desk = desk
        self._recv = recv
        self._credit = Credit(max_inflight)

    async def lines(self, bearings: Bearings) -> AsyncIterator[bytes]:
        """Yield envelopes as they become ready, a heartbeat when idle, and a last line when the service drains."""
        while not self._room.draining:
            if self._credit.left <= 0:
                if not await self._credit.wait():
                    yield self._heartbeat()
                continue
            try:
                received = await self._next(bearings)
            except Busy:
                received = m.Received(())
            for envelope in received.messages:
                yield _encode(envelope) + b"\n"
            if not received.messages:
                yield self._heartbeat()
        yield b'{"end":"draining"}\n'

    async def _next(self, bearings: Bearings) -> m.Received:
        """Wait for messages within the credit; they count against it from the moment they are leased."""
        wait_ms = round(HEARTBEAT_S * 1000)
        many = min(self._recv.max_messages, self._credit.left)
        asked = m.Recv(self._recv.topic, many, self._recv.visibility_ms, wait_ms, self._recv.max_bytes)
        job = self._desk.recv(asked, Bearings(bearings.corr_id), owner=self._credit)
        received: m.Received = await kept(job.promise)
        if received.inflight_full:
            await self._credit.wait()
        self._credit.used += len(received.messages)
        return received

    def _heartbeat(self) -> bytes:
        return b'{"heartbeat":%d}\n' % self._room.now().wall
