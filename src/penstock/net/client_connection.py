"""One connection of the client: it writes a request and reads its answer, each wait under a deadline.

There is no task here. The caller's own task writes and reads; the protocol's callbacks only store what came and wake
it. A caller that is cancelled anywhere hands the connection back unfinished, and the pool then closes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, cast

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, Malformed, PenstockError, Timeout
from penstock.kernel.metrics import Counter
from penstock.net.client_call import Call
from penstock.wire.http1_answer import AnswerEnd, AnswerHead, AnswerParser, Event

INBOX_BYTES: Final = 64 * 1024
# Unread answer bytes at which reading stops, and at which it goes on; one read may overshoot by the inbox.
HELD_BYTES_HIGH: Final = 128 * 1024
HELD_BYTES_LOW: Final = 32 * 1024
WRITE_SLICE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Waits:
    """What the connections of a client share: how long each wait may last, and who counts the breaches."""

    write_s: float
    read_s: float
    write_timeouts: Counter
    read_timeouts: Counter


class ClientConnection(asyncio.BufferedProtocol):
    """A socket with at most one call on it. Owned by its pool from dialling until `on_lost` was called."""

    __slots__ = (
        "_call_s",
        "_chunks",
        "_end",
        "_fault",
        "_head",
        "_held_bytes",
        "_inbox",
        "_lost",
        "_on_lost",
        "_parser",
        "_reading_paused",
        "_sent",
        "_transport",
        "_waiter",
        "_waits",
        "_writing_paused",
        "calls",
        "idle_until",
        "placed",
    )

    def __init__(self, inbox: bytearray, waits: Waits, on_lost: Callable[[ClientConnection], None]) -> None:
        """Take the client's receive buffer: it is filled and emptied within one callback, so all may share it."""
        self._inbox = inbox
        self._waits = waits
        self._on_lost = on_lost
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: deque[bytes] = deque()  # bounded: reading stops at HELD_BYTES_HIGH
        self._lost = self._reading_paused = self._writing_paused = False
        self._reset()
        self._call_s = 0.0
        self.calls = 0
        self.idle_until = 0.0
        # Whether the pool counts it among its connections; the pool alone writes this.
        self.placed = True

    def _reset(self) -> None:
        self._chunks.clear()
        self._held_bytes = 0
        self._head: AnswerHead | None = None
        self._end: AnswerEnd | None = None
        self._fault: PenstockError | None = None
        self._sent = True

    # --- what the pool asks

    @property
    def usable(self) -> bool:
        """Tell whether a request may be written: nothing is owed, nothing came unasked, nobody hung up."""
        transport = self._transport
        return transport is not None and not self._lost and not transport.is_closing() and self._parser.reusable

    @property
    def answered(self) -> bool:
        """Tell whether the peer has sent a byte of this call's answer."""
        return self._parser.fed_bytes > 0

    def recycle(self) -> bool:
        """Forget the finished call and tell whether another may follow."""
        if not (self._sent and self.usable):
            return False
        self._reset()
        self._resume_reading()
        return True

    def fail(self, error: PenstockError) -> None:
        """Cut the connection; whoever waits on it gets `error`."""
        self._fault = self._fault or error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """Close at once: nothing that is still to come or to go is of use."""
        if self._transport is not None:
            self._transport.abort()

    # --- one call

    async def send(self, call: Call) -> None:
        """Write the request; stops early when the peer has refused it before taking it all."""
        self._parser.begin(call.method)
        self.calls += 1
        self._call_s = call.timeout_s
        self._sent = False
        if isinstance(call.body, bytes):
            self._sent = await self._send_bytes(call.head, call.body)
        elif call.body_bytes is None:
            self._sent = await self._send_chunked(call.head, call.body)
        else:
            self._sent = await self._send_exactly(call, call.body, call.body_bytes)

    async def head(self) -> AnswerHead:
        """Wait for the final status, as long as the call's own deadline allows."""
        while self._head is None:
            self._raise_fault()
            await self._bounded("read", self._call_s, self._waits.read_timeouts)
        return self._head

    async def chunk(self) -> bytes:
        """Return the next piece of the body, nothing at its end; a cut body is an error after its last piece."""
        while not self._chunks:
            if self._end is not None:
                return self._check_end(self._end)
            self._raise_fault()
            await self._bounded("read", self._waits.read_s, self._waits.read_timeouts)
        piece = self._chunks.popleft()
        self._held_bytes -= len(piece)
        if self._reading_paused and self._held_bytes <= HELD_BYTES_LOW:
            self._resume_reading()
        return piece

    def whole(self) -> bytes | None:
        """Return the rest of the body if all of it is here already: the common case, and it costs no wait."""
        if self._end is None or not self._end.complete:
            return None
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._held_bytes = 0
        return body

    def _check_end(self, end: AnswerEnd) -> bytes:
        if not end.complete:
            raise self._fault or DownstreamUnavailable("The answer was cut before its end.", status=502)
        return b""

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    # --- writing

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None and not self._lost:
            self._transport.write(data)

    async def _send_bytes(self, head: bytes, body: bytes) -> bool:
        if len(body) <= WRITE_SLICE_BYTES:
            self._write(head + body)
            return await self._drained()
        self._write(head)
        view = memoryview(body)
        for at in range(0, len(body), WRITE_SLICE_BYTES):
            self._write(view[at : at + WRITE_SLICE_BYTES])
            if not await self._drained():
                return False
        return True

    async def _send_chunked(self, head: bytes, body: AsyncIterator[bytes]) -> bool:
        self._write(head)
        while (piece := await self._next_piece(body)) is not None:
            if piece:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not await self._drained():
                return False
        self._write(b"0\r\n\r\n")
        return await self._drained()

    async def _send_exactly(self, call: Call, body: AsyncIterator[bytes], left: int) -> bool:
        self._write(call.head)
        while (piece := await self._next_piece(body)) is not None:
            left -= len(piece)
            if left < 0:
                break
            self._write(piece)
            if not await self._drained():
                return False
        if left:
            raise Malformed("The request body is not as long as it was declared.")
        return True

    async def _next_piece(self, body: AsyncIterator[bytes]) -> bytes | None:
        # The source of the body is the caller's; only the call's own deadline bounds it.
        async with timeout("request_body", self._call_s):
            return await anext(body, None)

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
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the loop's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; a connection that was given up while dialling is closed at once."""
        # uvloop's transports keep the contract but do not derive from it, so isinstance cannot tell.
        self._transport = cast("asyncio.Transport", transport)
        if not self.placed:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Lend the shared buffer."""
        return self._inbox

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what came; bytes that nobody asked for close the connection."""
        unasked = self._parser.ended
        self._store(self._parser.feed(bytes(memoryview(self._inbox)[:nbytes])))
        if unasked:
            self.abort()

    def eof_received(self) -> bool:
        """End an answer that ends with the connection; then let the transport close."""
        self._store(self._parser.eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the caller and the pool."""
        self._lost = True
        self._store(self._parser.cut())
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Go on writing."""
        self._writing_paused = False
        self._wake()

    def _store(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, bytes):
                self._chunks.append(event)
                self._held_bytes += len(event)
            elif isinstance(event, AnswerHead):
                self._head = event
            elif isinstance(event, AnswerEnd):
                self._end = event
            else:
                self._fault = self._fault or event
        if events:
            self._wake()
        if self._held_bytes >= HELD_BYTES_HIGH:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and self._reading_paused and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()
