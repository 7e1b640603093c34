"""An upstream's answer on its way to the client: whole in one write, or streamed at the client's pace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Canceled, PenstockError
from penstock.kernel.lifecycle import until_drain
from penstock.net.message import RelayedResponse, StreamResponse
from penstock.net.server.wheel import NEVER
from penstock.services.omnigate.proxy.headers import relay_start
from penstock.wire.http1.answer import Framing

if TYPE_CHECKING:
    from penstock.kernel.lifecycle import Shutdown
    from penstock.net.calls.connection import ClientConnection
    from penstock.services.omnigate.proxy.call import ProxyAttempt
    from penstock.services.omnigate.proxy.shares import StreamTaker
    from penstock.wire.http1.answer import AnswerHead

_CORR: Final = b"X-Corr-ID: "


class DateHeader:
    """The Date an answer gets whose upstream sent none; made once a second."""

    __slots__ = ("_line", "_until", "_wall")

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._until = 0.0
        self._line = b""

    def line(self) -> bytes:
        """Return the field line of now."""
        now = self._wall()
        if not now < self._until or now < self._until - 1:
            self._until = now - now % 1 + 1
            self._line = f"Date: {formatdate(now, usegmt=True)}\r\n".encode("ascii")
        return self._line


def relay_whole(head: AnswerHead, body: bytes, date: DateHeader) -> RelayedResponse:
    """Pass an answer on whose body is all here: its length is known now, however it was framed."""
    start = head.relay_start
    if not start:
        start = relay_start(head, to_head=head.framing is Framing.NONE)
        if head.framing is Framing.CHUNKED or head.framing is Framing.EOF:
            start += b"Content-Length: %d\r\n" % len(body)
        else:
            # Equal heads mean the same: the next one is not looked at again.
            head.relay_start = start
    if b"date" in head.headers:
        return RelayedResponse(head.status, start + _CORR, body)
    return RelayedResponse(head.status, start + date.line() + _CORR, body)


def endless(head: AnswerHead) -> bool:
    """Tell whether an answer goes on until somebody ends it: server-sent events, whose clients come back."""
    return head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == b"text/event-stream"


def relay_stream(head: AnswerHead, chunks: RelayStream, date: DateHeader) -> StreamResponse:
    """Pass an answer on whose body is still coming."""
    known = head.framing is Framing.LENGTH
    answer = StreamResponse(head.status, chunks, length=head.length if known else None)
    start = relay_start(head, to_head=False)
    if known:
        # The listener adds the framing of a stream itself.
        start = start[: start.rindex(b"Content-Length: ")]
    if b"date" not in head.headers:
        start += date.line()
    answer.start = start + _CORR
    # Each read is bounded by the upstream's read timeout.
    answer.chunk_s = NEVER
    return answer


class RelayStream(AsyncIterator[bytes]):
    """The body of an upstream's answer, in pieces of at most 64 KiB; nobody reads ahead of the client."""

    __slots__ = ("_attempt", "_connection", "_key", "_shutdown", "_taker")

    def __init__(
        self,
        attempt: ProxyAttempt,
        connection: ClientConnection,
        key: Hashable,
        taker: StreamTaker | None,
        shutdown: Shutdown | None = None,
    ) -> None:
        """Hold the connection until the body is over, or nobody wants it; who takes it is counted meanwhile.

        A drain that `shutdown` tells of ends the body early, as if the upstream had ended it.
        """
        self._attempt = attempt
        self._shutdown = shutdown
        self._connection: ClientConnection | None = connection
        self._key = key
        self._taker = taker
        if taker is not None:
            attempt.shares.begin_stream(key, taker)

    async def __anext__(self) -> bytes:
        """Wait for the next piece; a body that was cut is an error, so that the client's is cut too."""
        if self._connection is None:
            raise StopAsyncIteration
        try:
            piece = await (self._connection.chunk() if self._shutdown is None else self._next_event(self._shutdown))
        except PenstockError as error:
            self._attempt.cut_short(error)
            raise
        if not piece:
            self._end()
            raise StopAsyncIteration
        return piece

    async def _next_event(self, shutdown: Shutdown) -> bytes:
        """Wait for the next piece of events, or for a drain: nothing, then."""
        assert self._connection is not None
        async with until_drain(shutdown):
            return await self._connection.chunk()
        return b""

    def stop(self) -> None:
        """Cut the upstream: the client is gone."""
        if self._connection is not None:
            self._connection.fail(Canceled("The client went away."))

    async def aclose(self) -> None:
        """Give the connection back; an unfinished one is closed."""
        self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection = None
            self._attempt.let_go()
            if self._taker is not None:
                self._attempt.shares.end_stream(self._key, self._taker)
