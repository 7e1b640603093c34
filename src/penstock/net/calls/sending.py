"""The writing side of a client's connection: a request goes out at the peer's pace, each wait under a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Malformed, PenstockError, Timeout
from penstock.kernel.metrics import Counter
from penstock.net.calls.call import ClientCall
from penstock.wire.http1.answer import AnswerEnd, AnswerHead

WRITE_SLICE_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class ClientTimeouts:
    """What the connections of a client share: how long each wait may last, which a reload may change, and who counts the breaches."""

    write_s: float
    read_s: float
    write_timeouts: Counter
    read_timeouts: Counter


class Sending:
    """What a connection knows of its call, and how it writes one. The reading side is `ClientConnection`."""

    __slots__ = (
        "_call_s", "_end", "_fault", "_head", "_lost", "_sent", "_transport", "_waiters", "_waits", "_writing_paused",
    )  # fmt: skip

    def __init__(self, waits: ClientTimeouts) -> None:
        """Start without a transport and without a call."""
        self._waits = waits
        self._transport: asyncio.Transport | None = None
        # At most two: who sends the body and who reads the answer.
        self._waiters: set[asyncio.Future[None]] = set()
        self._lost = self._writing_paused = False
        self._call_s = 0.0
        self._forget_call()

    def _forget_call(self) -> None:
        self._head: AnswerHead | None = None
        self._end: AnswerEnd | None = None
        self._fault: PenstockError | None = None
        # Whether the peer was given the whole request.
        self._sent = True

    # --- a request in one piece, or as it comes

    async def _send_call(self, call: ClientCall) -> bool:
        if isinstance(call.body, bytes):
            return await self._send_bytes(call.head, call.body)
        self._write(call.head)
        return await self._send_pieces(call.body, call.body_bytes)

    async def _send_bytes(self, head: bytes, body: bytes) -> bool:
        if len(body) <= WRITE_SLICE_BYTES:
            self._write(head + body)
            return await self._drained()
        self._write(head)
        view = memoryview(body)
        for at in range(0, len(body), WRITE_SLICE_BYTES):
            self._write(view[at : at + WRITE_SLICE_BYTES])
            if not await self._piece_taken():
                return False
        return True

    async def _send_pieces(self, body: AsyncIterator[bytes], length: int | None) -> bool:
        """Send a body as its source gives it; tell whether the peer took it all."""
        return await (self._send_chunked(body) if length is None else self._send_exactly(body, length))

    async def _send_chunked(self, body: AsyncIterator[bytes]) -> bool:
        while (piece := await self._next_piece(body)) is not None:
            if piece:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not await self._piece_taken():
                return False
        self._write(b"0\r\n\r\n")
        return await self._drained()

    async def _send_exactly(self, body: AsyncIterator[bytes], left: int) -> bool:
        while (piece := await self._next_piece(body)) is not None:
            left -= len(piece)
            if left < 0:
                break
            self._write(piece)
            if not await self._piece_taken():
                return False
        if left:
            raise Malformed("The request body is not as long as it was declared.")
        return True

    async def _next_piece(self, body: AsyncIterator[bytes]) -> bytes | None:
        # The source of the body is the caller's; only the call's own deadline bounds it.
        async with timeout("request_body", self._call_s):
            return await anext(body, None)

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None and not self._lost:
            self._transport.write(data)

    async def _piece_taken(self) -> bool:
        """Let the loop turn, then wait as `_drained` does.

        A source that is always ready, before a peer that is too, never waits; nor does a transport that has lost its
        peer. Without this turn the end of the connection, an early answer and every deadline would go unnoticed.
        """
        await asyncio.sleep(0)
        return await self._drained()

    async def _drained(self) -> bool:
        """Wait until the peer takes more; false when it will not need the rest."""
        while self._writing_paused and not self._refused():
            await self._bounded("write", self._waits.write_s, self._waits.write_timeouts)
        return not self._refused()

    def _refused(self) -> bool:
        """Tell whether the rest of the request is pointless: it was answered already, or nobody listens.

        A 2xx that is still coming may depend on the rest, so it stops nothing.
        """
        early = self._head is not None and (self._head.status >= 300 or self._end is not None)
        return early or self._fault is not None or self._lost

    # --- waiting

    async def _bounded(self, op: str, seconds: float, breaches: Counter) -> None:
        try:
            async with timeout(op, seconds):
                await self._wait()
        except Timeout:
            breaches.value += 1
            raise

    async def _wait(self) -> None:
        """Sleep until a callback has changed something; the caller looks at the state again, so no wake is lost."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
