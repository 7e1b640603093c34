"""How a client's connection sends a request: at the peer's pace, and no further than the peer wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Malformed
from penstock.net.calls.call import ClientCall
from penstock.net.calls.inbox import AnswerInbox
from penstock.net.calls.waiting import CallSignal, ClientTimeouts

WRITE_SLICE_BYTES: Final = 64 * 1024


class RequestOutbox:
    """Writes one request at a time; stops early when the peer answers before it has taken everything."""

    __slots__ = ("_inbox", "_signal", "_timeouts", "call_s", "is_sent", "paused", "transport")

    def __init__(self, inbox: AnswerInbox, signal: CallSignal, timeouts: ClientTimeouts) -> None:
        """Look into `inbox` for an early answer; `signal` tells when the peer takes more."""
        self._inbox = inbox
        self._signal = signal
        self._timeouts = timeouts
        # None before the connection is made and after it was lost; the connection alone writes this.
        self.transport: asyncio.Transport | None = None
        # True while the transport holds as much as it may; the connection alone writes this.
        self.paused = False
        # Whether the peer was given the whole request.
        self.is_sent = True
        # How long the caller's own source may take for each piece.
        self.call_s = 0.0

    def write(self, data: bytes | memoryview) -> None:
        """Hand bytes to the transport; without a peer they are dropped."""
        if self.transport is not None:
            self.transport.write(data)

    async def send(self, call: ClientCall) -> None:
        """Write the request; stop early when the peer has refused it before taking it all."""
        self.is_sent, self.call_s = False, call.timeout_s
        if isinstance(call.body, bytes):
            self.is_sent = await self._send_bytes(call.head, call.body)
        else:
            self.write(call.head)
            self.is_sent = await self._send_pieces(call.body, call.body_bytes)

    async def upload(self, body: AsyncIterator[bytes], length: int | None, piece_s: float) -> None:
        """Write the body of a request whose head was written already."""
        self.call_s = piece_s
        self.is_sent = await self._send_pieces(body, length)

    async def _send_bytes(self, head: bytes, body: bytes) -> bool:
        if len(body) <= WRITE_SLICE_BYTES:
            self.write(head + body)
            return await self._drained()
        self.write(head)
        view = memoryview(body)
        for at in range(0, len(body), WRITE_SLICE_BYTES):
            self.write(view[at : at + WRITE_SLICE_BYTES])
            if not await self._piece_taken():
                return False
        return True

    async def _send_pieces(self, body: AsyncIterator[bytes], length: int | None) -> bool:
        """Send a body as its source gives it; tell whether the peer took it all."""
        return await (self._send_chunked(body) if length is None else self._send_exactly(body, length))

    async def _send_chunked(self, body: AsyncIterator[bytes]) -> bool:
        while (piece := await self._next_piece(body)) is not None:
            if piece:
                self.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not await self._piece_taken():
                return False
        self.write(b"0\r\n\r\n")
        return await self._drained()

    async def _send_exactly(self, body: AsyncIterator[bytes], left: int) -> bool:
        while (piece := await self._next_piece(body)) is not None:
            left -= len(piece)
            if left < 0:
                break
            self.write(piece)
            if not await self._piece_taken():
                return False
        if left:
            raise Malformed("The request body is not as long as it was declared.")
        return True

    async def _next_piece(self, body: AsyncIterator[bytes]) -> bytes | None:
        # The source of the body is the caller's; only the call's own deadline bounds it.
        async with timeout("request_body", self.call_s):
            return await anext(body, None)

    async def _piece_taken(self) -> bool:
        """Let the loop turn, then wait as `_drained` does.

        A source that is always ready, before a peer that is too, never waits; nor does a transport that has lost its
        peer. Without this turn the end of the connection, an early answer and every deadline would go unnoticed.
        """
        await asyncio.sleep(0)
        return await self._drained()

    async def _drained(self) -> bool:
        """Wait until the peer takes more; False when it will not need the rest."""
        while self.paused and not self._is_refused():
            await self._signal.wait("write", self._timeouts.write_s, self._timeouts.write_timeouts)
        return not self._is_refused()

    def _is_refused(self) -> bool:
        """Tell whether the rest of the request is pointless: it was answered already, or nobody listens."""
        return self._inbox.is_early or self._inbox.fault is not None or self.transport is None
