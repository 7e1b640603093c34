"""One connection of the client: it writes a request and reads its answer, each wait under a deadline.

A connection is three objects. `RequestOutbox` writes the request at the peer's pace, `AnswerInbox` holds what was
parsed of the answer, and `ClientConnection` joins them to the transport. It carries at most one call at a time, and
has no task of its own. There are two ways to make a call:

- *By a task*: `send`, then `head`, then `chunk` until it returns nothing. The transport's callbacks store what came
  and wake the task.
- *Without a task*: `ask` with a taker, which is told in the very callback that received the answer. A whole answer is
  told as one; of a long or slow one the head is told, and its body is then read by `chunk`.

A caller that is cancelled anywhere hands the connection back unfinished, and the pool then closes it. `recycle` tells
whether another call may follow: the request was sent and the answer is over. Before the next call is written the pool
asks once more, and also the socket: bytes that came meanwhile are an answer to nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol, cast

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import PenstockError, Timeout
from penstock.net.calls.call import ClientCall
from penstock.net.calls.inbox import AnswerInbox
from penstock.net.calls.outbox import RequestOutbox
from penstock.net.calls.waiting import CallSignal, ClientTimeouts
from penstock.wire.http1.answer import AnswerHead, Event

BUFFER_BYTES: Final = 64 * 1024
# Unread answer bytes at which reading stops, and at which it goes on; one read may overshoot by the buffer.
HELD_BYTES_HIGH: Final = 128 * 1024
HELD_BYTES_LOW: Final = 32 * 1024
# A short answer whose end is not here yet is worth this wait: many servers write head and body apart.
PATIENCE_S: Final = 0.005
_NONE_UNREAD: Final = bytes(4)


class AnswerTaker(Protocol):
    """Gets the answer to a request made by `ask`: one of these is called, once, unless the call is dropped first."""

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


class ClientConnection(asyncio.BufferedProtocol):
    """A socket with at most one call on it. Owned by its pool from dialling until `on_lost` was called."""

    __slots__ = (
        "_buffer", "_fd", "_inbox", "_on_lost", "_outbox", "_patience", "_reading_paused", "_signal", "_taker",
        "_timeouts", "_transport", "_view", "calls", "idle_until", "placed",
    )  # fmt: skip

    def __init__(
        self, buffer: bytearray, timeouts: ClientTimeouts, on_lost: Callable[[ClientConnection], None]
    ) -> None:
        """Take the client's receive buffer: it is filled and emptied within one callback, so all may share it."""
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._timeouts = timeouts
        self._on_lost = on_lost
        # None before the connection is made and after it was lost.
        self._transport: asyncio.Transport | None = None
        # The socket's descriptor while there is a transport on one; -1 otherwise.
        self._fd = -1
        self._signal = CallSignal()
        self._inbox = AnswerInbox()
        self._outbox = RequestOutbox(self._inbox, self._signal, timeouts)
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
        return transport is not None and not transport.is_closing() and self._inbox.parser.reusable

    @property
    def died_unseen(self) -> bool:
        """Tell whether a kept connection failed before a byte of this call's answer.

        Most likely the peer closed it while it was idle and never saw the request. A call that may be repeated is then
        sent again on a new connection, and that is no retry.
        """
        return self.calls > 1 and not self._inbox.parser.fed_bytes

    @property
    def has_unread(self) -> bool:
        """Tell whether bytes lie in the socket that the loop has not brought yet.

        Before a request is written such bytes are nobody's answer: they would be taken for the answer to the next one.
        """
        return self._fd >= 0 and fcntl.ioctl(self._fd, termios.FIONREAD, _NONE_UNREAD) != _NONE_UNREAD

    def recycle(self) -> bool:
        """Forget the finished call and tell whether another may follow."""
        if not (self._outbox.is_sent and self.usable):
            return False
        if self._inbox.head is not None:
            self._inbox.forget()
        if self._reading_paused:
            self._resume_reading()
        return True

    def fail(self, error: PenstockError) -> None:
        """Cut the connection; whoever waits on it gets `error`."""
        self._inbox.fail(error)
        self.abort()
        self._tell()

    def abort(self) -> None:
        """Close at once: nothing that is still to come or to go is of use."""
        if self._transport is not None:
            self._transport.abort()

    # --- one call by a task

    async def send(self, call: ClientCall) -> None:
        """Write the request; stops early when the peer has refused it before taking it all."""
        self._inbox.parser.begin(call.method)
        self.calls += 1
        await self._outbox.send(call)  # lint: allow PK009 each wait is bounded inside

    async def head(self) -> AnswerHead:
        """Wait for the final status, as long as the call's own deadline allows."""
        inbox = self._inbox
        while inbox.head is None:
            if inbox.fault is not None:
                raise inbox.fault
            await self._signal.wait("read", self._outbox.call_s, self._timeouts.read_timeouts)
        return inbox.head

    async def chunk(self) -> bytes:
        """Return the next piece of the body, nothing at its end; a cut body is an error after its last piece."""
        inbox = self._inbox
        while (piece := inbox.next_piece()) is None:
            await self._signal.wait("read", self._timeouts.read_s, self._timeouts.read_timeouts)
        if self._reading_paused and inbox.held_bytes <= HELD_BYTES_LOW:
            self._resume_reading()
        return piece

    def whole(self) -> bytes | None:
        """Return the rest of the body if all of it is here already: the common case, and it costs no wait."""
        return self._inbox.whole()

    # --- one call without a task: the answer comes in the callback that received it

    def ask(self, method: str, request: bytes, taker: AnswerTaker, *, body_follows: bool = False) -> None:
        """Write a request, or the head of one whose body follows by `upload`; `taker` hears what becomes of it.

        Nothing here bounds the wait: the caller does, and ends it by `drop`.
        """
        outbox = self._outbox
        self._inbox.parser.begin(method)
        self.calls += 1
        self._taker = taker
        outbox.is_sent = not body_follows
        outbox.write(request)

    async def asked(self, call: ClientCall) -> tuple[AnswerHead, bytes | None]:
        """Ask, and wait for the answer: with its body if that comes along, else the body is read by `chunk`."""
        arrival = FutureTaker(asyncio.get_running_loop())
        self._outbox.call_s = call.timeout_s
        assert isinstance(call.body, bytes)
        self.ask(call.method, call.head + call.body, arrival)
        try:
            async with timeout("read", call.timeout_s):
                return await arrival.future
        except BaseException as error:
            self._timeouts.read_timeouts.value += isinstance(error, Timeout)
            self._part()
            raise

    async def upload(self, body: AsyncIterator[bytes], length: int | None, piece_s: float) -> None:
        """Send the body of a request whose head was written by `ask`; the answer may come, and be read, meanwhile."""
        await self._outbox.upload(body, length, piece_s)

    def drop(self) -> None:
        """Forget the taker and cut the connection: nobody waits for this answer any more."""
        self._part()
        self.abort()

    def _tell(self) -> None:
        """Tell whoever waits for this call that its state has changed."""
        if self._taker is not None:
            self._hand_over(self._taker)
        self._signal.wake()

    def _hand_over(self, taker: AnswerTaker) -> None:
        """Tell the taker of a whole answer, of its failure, or of the beginning of one that is long or slow."""
        inbox = self._inbox
        head, failure = inbox.head, inbox.failure
        if failure is not None:
            self._part()
            taker.failed(failure)
        elif head is not None and inbox.end is not None:
            self._part()
            taker.whole(head, inbox.whole() or b"")
        elif head is not None and not self._is_short(head):
            self._part()
            taker.begun(head)
        elif head is not None and self._patience is None:
            # lint: allow PK006 one timer a call, and only for an answer in pieces; _part takes it off
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._out_of_patience)

    def _is_short(self, head: AnswerHead) -> bool:
        return self._inbox.held_bytes < BUFFER_BYTES and (head.length is None or head.length <= BUFFER_BYTES)

    def _out_of_patience(self) -> None:
        taker, head = self._taker, self._inbox.head
        self._part()
        if taker is not None and head is not None:
            taker.begun(head)

    def _part(self) -> None:
        """Forget who asked, and the timer that waits for the end of a short answer."""
        self._taker = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # --- the loop's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; a connection that was given up while dialling is closed at once."""
        # uvloop's transports keep the contract but do not derive from it, so isinstance cannot tell.
        self._transport = self._outbox.transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        self._fd = -1 if sock is None else sock.fileno()
        if not self.placed:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the shared buffer.

        As a view: asyncio's TLS fills a slice of what it gets, and a slice of a bytearray is a copy.
        """
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what came; bytes that nobody asked for close the connection."""
        data, parser, taker = bytes(self._view[:nbytes]), self._inbox.parser, self._taker
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
        self._store(self._inbox.parser.eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the caller and the pool."""
        self._transport = self._outbox.transport = None
        self._fd = -1
        self._store(self._inbox.parser.cut())
        self._tell()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._outbox.paused = True

    def resume_writing(self) -> None:
        """Go on writing."""
        self._outbox.paused = False
        self._signal.wake()

    def _store(self, events: list[Event]) -> None:
        self._inbox.store(events)
        if events:
            self._tell()
        if self._inbox.held_bytes >= HELD_BYTES_HIGH:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and self._reading_paused and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()
