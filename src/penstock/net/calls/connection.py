"""One connection of the client: it writes a request and reads its answer, each wait under a deadline.

There is no task here. A caller's own task writes and reads by `send`, `head` and `chunk`, and the protocol's callbacks
only store what came and wake it; or nobody waits at all, and who asked by `ask` is told in the callback. A caller that
is cancelled anywhere hands the connection back unfinished, and the pool then closes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol, cast

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, PenstockError, Timeout
from penstock.net.calls.call import ClientCall
from penstock.net.calls.sending import ClientTimeouts, Sending
from penstock.wire.http1.answer import (
    AnswerEnd,
    AnswerHead,
    AnswerParser,
    Event,
)

INBOX_BYTES: Final = 64 * 1024
# Unread answer bytes at which reading stops, and at which it goes on; one read may overshoot by the inbox.
HELD_BYTES_HIGH: Final = 128 * 1024
HELD_BYTES_LOW: Final = 32 * 1024
# A short answer whose end is not here yet is worth this wait: many servers write head and body apart.
PATIENCE_S: Final = 0.005


class AnswerTaker(Protocol):
    """Who gets the answer to a request made by `ask`: one of these is called, once, unless the call is dropped before."""

    def whole(self, head: AnswerHead, body: bytes) -> None:
        """Take an answer that is here as a whole."""
        ...

    def begun(self, head: AnswerHead) -> None:
        """Take the head; the body is on its way and is read by `chunk`."""
        ...

    def failed(self, error: PenstockError) -> None:
        """Take the reason why there will be no answer."""
        ...


class FutureTaker:
    """A taker whose caller waits on a future."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for an answer."""
        self.future: asyncio.Future[tuple[AnswerHead, bytes | None]] = loop.create_future()

    def whole(self, head: AnswerHead, body: bytes) -> None:
        """Hand over head and body."""
        if not self.future.done():
            self.future.set_result((head, body))

    def begun(self, head: AnswerHead) -> None:
        """Hand over the head."""
        if not self.future.done():
            self.future.set_result((head, None))

    def failed(self, error: PenstockError) -> None:
        """Hand over the failure."""
        if not self.future.done():
            self.future.set_exception(error)


class ClientConnection(Sending, asyncio.BufferedProtocol):
    """A socket with at most one call on it. Owned by its pool from dialling until `on_lost` was called."""

    __slots__ = (
        "_chunks", "_held_bytes", "_inbox", "_on_lost", "_parser", "_patience", "_reading_paused", "_taker", "_view", "calls", "idle_until",
        "placed",
    )  # fmt: skip

    def __init__(self, inbox: bytearray, waits: ClientTimeouts, on_lost: Callable[[ClientConnection], None]) -> None:
        """Take the client's receive buffer: it is filled and emptied within one callback, so all may share it."""
        super().__init__(waits)
        self._inbox = inbox
        self._view = memoryview(inbox)
        self._on_lost = on_lost
        self._parser = AnswerParser()
        self._chunks: deque[bytes] = deque()  # bounded: reading stops at HELD_BYTES_HIGH
        self._held_bytes = 0
        self._reading_paused = False
        # Who hears of the answer to a request made by `ask`, until it was told.
        self._taker: AnswerTaker | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.calls = 0
        self.idle_until = 0.0
        # Whether the pool counts it among its connections; the pool alone writes this.
        self.placed = True

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
        if self._head is not None:
            self._chunks.clear()
            self._held_bytes = 0
            self._forget_call()
        if self._reading_paused:
            self._resume_reading()
        return True

    def fail(self, error: PenstockError) -> None:
        """Cut the connection; whoever waits on it gets `error`."""
        self._fault = self._fault or error
        self.abort()
        self._tell()

    def abort(self) -> None:
        """Close at once: nothing that is still to come or to go is of use."""
        if self._transport is not None:
            self._transport.abort()

    # --- one call by a task

    async def send(self, call: ClientCall) -> None:
        """Write the request; stops early when the peer has refused it before taking it all."""
        self._parser.begin(call.method)
        self.calls += 1
        self._call_s = call.timeout_s
        self._sent = False
        self._sent = await self._send_call(call)

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
            raise self._fault or _cut()
        return b""

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    # --- one call without a task: the answer comes in the callback that received it

    def ask(self, method: str, request: bytes, taker: AnswerTaker, *, body_follows: bool = False) -> None:
        """Write a request, or the head of one whose body follows by `upload`; `taker` hears what becomes of it.

        Nothing here bounds the wait: the caller does, and ends it by `drop`.
        """
        self._parser.begin(method)
        self.calls += 1
        self._taker = taker
        self._sent = not body_follows
        self._write(request)

    async def asked(self, call: ClientCall) -> tuple[AnswerHead, bytes | None]:
        """Ask, and wait for the answer: with its body if that comes along, else the body is read by `chunk`."""
        arrival = FutureTaker(asyncio.get_running_loop())
        self._call_s = call.timeout_s
        assert isinstance(call.body, bytes)
        self.ask(call.method, call.head + call.body, arrival)
        try:
            async with timeout("read", call.timeout_s):
                return await arrival.future
        except BaseException as error:
            self._waits.read_timeouts.value += isinstance(error, Timeout)
            self._part()
            raise

    async def upload(self, body: AsyncIterator[bytes], length: int | None, piece_s: float) -> None:
        """Send the body of a request whose head was written by `ask`; the answer may come, and be read, meanwhile."""
        self._call_s = piece_s
        self._sent = await self._send_pieces(body, length)

    def drop(self) -> None:
        """Forget the taker and cut the connection: nobody waits for this answer any more."""
        self._taker = None
        self._lose_patience()
        self.abort()

    def _tell(self) -> None:
        """Tell whoever waits for this call that its state has changed."""
        if self._taker is not None:
            self._hand_over(self._taker)
        if self._waiters:
            self._wake()

    def _hand_over(self, taker: AnswerTaker) -> None:
        """Hand over what there is to tell: the whole answer, its failure, or, when it is long or slow, its beginning."""
        head, end = self._head, self._end
        fault = self._fault or (None if end is None or end.complete else _cut())
        if fault is not None:
            self._part()
            taker.failed(fault)
        elif head is not None and end is not None:
            self._part()
            taker.whole(head, self.whole() or b"")
        elif head is not None and not self._is_short(head):
            self._part()
            taker.begun(head)
        elif head is not None and self._patience is None:
            # lint: allow PK006 one timer a call, and only for an answer in pieces; _part and drop take it off
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._out_of_patience)

    def _is_short(self, head: AnswerHead) -> bool:
        return self._held_bytes < INBOX_BYTES and (head.length is None or head.length <= INBOX_BYTES)

    def _out_of_patience(self) -> None:
        taker, head = self._taker, self._head
        self._part()
        if taker is not None and head is not None:
            taker.begun(head)

    def _part(self) -> None:
        self._taker = None
        self._lose_patience()

    def _lose_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

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
        data, parser, taker = bytes(self._view[:nbytes]), self._parser, self._taker
        if taker is not None:
            answer = parser.take_whole(data)
            if answer is not None:
                self._taker = None
                taker.whole(answer[0], answer[1])
                return
        unasked = parser.ended
        self._store(parser.feed(data))
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
        self._tell()
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
            self._tell()
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


def _cut() -> DownstreamUnavailable:
    return DownstreamUnavailable("The answer was cut before its end.", status=502)
