"""A stream of messages: an Envelope a line, never more unsettled than its credit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import PenstockError, Timeout
from penstock.net.promise import answer_of
from penstock.services.mailbox.engine_reader import pause
from penstock.services.mailbox.jobs import RequestMeta

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.topics import Message
    from penstock.services.mailbox.state import MailboxParts

HEARTBEAT_S: Final = 10.0
_REFUSED_S: Final = 0.02
_encode: Final = msgspec.json.Encoder().encode


class StreamCredit:
    """How many messages of a stream are unsettled; a settlement or lapse gives one back."""

    __slots__ = ("_changed", "limit", "rejudge", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._changed = asyncio.Event()
        # Says why the stream must end, once its capability is good no more.
        self.rejudge: Callable[[], PenstockError | None] | None = None

    @property
    def left(self) -> int:
        """Return how many more may be leased."""
        return self.limit - self.used

    def leased(self, count: int) -> None:
        """Use credit up; called when the messages are leased, before they are written to the stream."""
        self.used += count

    def settled(self) -> None:
        """Give credit back: a message of the stream was settled, lapsed or undone."""
        self.used -= 1
        self._changed.set()

    def wake(self) -> None:
        """End the wait for credit, for another reason."""
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

    def __init__(self, parts: MailboxParts, recv: m.Recv, max_inflight: int) -> None:
        """Ask for what `recv` asks for, again and again."""
        self._state = parts.state
        self._dispatcher = parts.dispatcher
        self._recv = recv
        self._credit = StreamCredit(max_inflight)
        # What was leased and not yet handed on.
        self._leased: list[tuple[Message, int]] = []

    async def lines(self, meta: RequestMeta) -> AsyncIterator[bytes]:
        """Yield envelopes as they become ready, a heartbeat when idle, and a last line that says why it ends."""
        end = "draining"
        self._credit.rejudge = meta.rejudge
        self._state.credits.add(self._credit)
        forget = None if meta.shutdown is None else meta.shutdown.on_drain(self._credit.wake)
        try:
            while not self._drains(meta):
                idle = self._credit.left <= 0
                received = () if idle else await self._next(meta)
                woken = idle and await self._credit.wait()
                if refused := self._refused():
                    end = refused
                    break
                if woken:
                    continue
                for envelope in received:
                    # This one was handed over. If the stream ends here, the others are given back.
                    del self._leased[0]
                    yield _encode(envelope) + b"\n"
                if not received:
                    yield self._heartbeat()
        finally:
            self._state.credits.discard(self._credit)
            if forget is not None:
                forget()
            self._dispatcher.give_back(self._leased)
        yield b'{"end":"%b"}\n' % end.encode()

    def _drains(self, meta: RequestMeta) -> bool:
        """Tell whether the mailbox drains, or the listener that the stream goes through."""
        return self._state.draining or (meta.shutdown is not None and meta.shutdown.draining)

    def _refused(self) -> str:
        """Say why the stream must end: its capability may expire or be revoked under it. Empty when it may go on."""
        error = None if self._credit.rejudge is None else self._credit.rejudge()
        return "" if error is None else str(error.facts.get("reason") or error.code)

    async def _next(self, meta: RequestMeta) -> tuple[m.Envelope, ...]:
        """Wait for messages within the credit, or for a heartbeat's time."""
        until = self._state.now().mono + HEARTBEAT_S * 1000
        while not self._drains(meta) and (left_ms := until - self._state.now().mono) > 0:
            try:
                return await self._ask(meta, math.ceil(left_ms))
            except PenstockError as error:
                if self._refused():
                    return ()
                if not error.retryable:
                    raise
                # Refused for the moment: the shards are busy or being rebound, or the engine failed or is opened again.
                await pause(_REFUSED_S)
        return ()

    async def _ask(self, meta: RequestMeta, wait_ms: int) -> tuple[m.Envelope, ...]:
        recv = self._recv
        many = min(recv.max_messages, self._credit.left)
        asked = m.Recv(recv.topic, many, recv.visibility_ms, wait_ms, recv.max_bytes)
        poll = RequestMeta(meta.corr_id)
        poll.rejudge, poll.shutdown = meta.rejudge, meta.shutdown
        job = self._dispatcher.recv(asked, poll, owner=self._credit)
        try:
            received: m.Received = await answer_of(job.promise)
        finally:
            self._leased = job.got
        return received.messages

    def _heartbeat(self) -> bytes:
        return b'{"heartbeat":%d}\n' % self._state.now().wall
