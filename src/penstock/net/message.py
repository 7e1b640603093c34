"""What a handler sees of a request, and what it may give back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import Malformed, PenstockError
from penstock.net.promise import Promise
from penstock.net.server.ticket import NO_TICKET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from penstock.net.server.admission import Refusal
    from penstock.net.server.body import BodyStream
    from penstock.net.server.core import RouteMatch
    from penstock.net.server.ticket import Ticket
    from penstock.wire.http1.head import HttpHead

JSON: Final = b"application/json"

QUERY_FIELDS_MAX: Final = 100
_DEADLINE_DIGITS_MAX: Final = 9
_NAME_CHARS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class Peer(NamedTuple):
    """Who is at the other end, as far as the socket knows."""

    host: str
    port: int
    uid: int | None
    secure: bool


class Request:
    """One request whose head passed every check. `headers` may be shared with equal requests: read-only."""

    __slots__ = (
        "_stream", "body", "body_bytes_max", "corr", "head", "headers", "held_bytes", "method", "params", "peer",
        "received_at", "route", "shutdown", "ticket", "timeout_s",
    )  # fmt: skip

    def __init__(self, head: HttpHead, found: RouteMatch, peer: Peer, corr: bytes, received_at: float) -> None:
        """Join a head to the route that was found for it; the connection sets the body."""
        self.head = head
        self.method = head.method
        self.headers = head.headers
        self.route = found.route
        self.params = found.params
        # Its listener's. A handler that waits for something to come ends its wait when this says that it drains.
        self.shutdown = found.shutdown
        self.peer = peer
        self.corr = corr
        self.body = b""
        self.body_bytes_max = found.endpoint.body_bytes_max
        # What this request holds of the process's byte budget; the connection gives it back.
        self.held_bytes = 0
        self.received_at: float = received_at
        self.timeout_s: float = found.endpoint.timeout_s
        given = head.headers.get(b"x-deadline-ms")
        if given is not None:
            self.timeout_s = min(found.endpoint.timeout_max_s, _deadline_s(given))
        # What it holds at the listener's gate; whoever admits it puts another one here.
        self.ticket: Ticket = NO_TICKET
        self._stream: BodyStream | None = None

    @property
    def path(self) -> str:
        """Return the path as it was sent, undecoded."""
        return self.head.target.path

    @property
    def segments(self) -> tuple[str, ...]:
        """Return the path's segments, each decoded once."""
        return self.head.target.segments

    @property
    def query(self) -> bytes:
        """Return the query as it was sent."""
        return self.head.target.query

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """Return the header fields as they were sent: names in lower case, repeated ones not joined."""
        return self.head.fields

    @property
    def corr_id(self) -> str:
        """Return the correlation id every answer, log line and downstream call carries."""
        return self.corr.decode("ascii")

    @property
    def traceparent(self) -> str | None:
        """Return the caller's trace context, to be passed on."""
        value = self.headers.get(b"traceparent")
        return None if value is None else value.decode("ascii")

    @property
    def deadline(self) -> Deadline:
        """Return the instant after which the answer is a 504."""
        return Deadline.after(self.timeout_s, self.received_at)

    def query_params(self) -> dict[str, str]:
        """Decode the query; a name that comes twice is malformed, because two readers could disagree."""
        try:
            pairs = parse_qsl(
                self.query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
            )
        except ValueError as exc:
            raise Malformed("The query cannot be decoded.") from exc
        params = dict(pairs)
        if len(params) != len(pairs):
            raise Malformed("A query parameter came twice.")
        return params

    def open_stream(self, stream: BodyStream) -> None:
        """Attach the body that is still on its way."""
        self._stream = stream

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces of at most 64 KiB; a body that was read already is one piece."""
        if self._stream is None:
            if self.body:
                yield self.body
            return
        async for piece in self._stream:
            yield piece


def _deadline_s(given: bytes) -> float:
    """Read X-Deadline-Ms; the route's own limit bounds it."""
    if not given.isdigit() or len(given) > _DEADLINE_DIGITS_MAX or not int(given):
        raise Malformed("X-Deadline-Ms is a number of milliseconds above zero.")
    return int(given) / 1000


def check_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a field that would end its line: it could forge the rest of the answer."""
    for name, value in headers:
        if b"\n" in value or b"\r" in value or b"\0" in value or not name or not _NAME_CHARS.issuperset(name):
            raise ValueError(f"{name!r} cannot be a field of an answer with this value")


class Response:
    """A whole answer."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        content_type: bytes = JSON,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Take the fields beyond those that the listener writes itself: framing, date and correlation id."""
        if headers:
            check_headers(headers)
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers


class WrittenJson(bytes):
    """The JSON body of a 200 that the handler has encoded itself."""

    __slots__ = ()


class AcceptedJson(bytes):
    """The JSON body of a 202 that the handler has encoded itself."""

    __slots__ = ()


class RelayedResponse:
    """A whole answer of somebody else, passed on: its head is written already, up to the value of X-Corr-ID."""

    __slots__ = ("body", "start", "status")

    def __init__(self, status: int, start: bytes, body: bytes) -> None:
        """Take `start` with its framing in it. Its fields are not checked again: the caller has done that."""
        self.status = status
        self.start = start
        self.body = body


class StreamResponse:
    """An answer whose body is made while it is sent, no faster than the client reads."""

    __slots__ = ("chunk_s", "chunks", "content_type", "headers", "length", "start", "status")

    def __init__(
        self,
        status: int,
        chunks: AsyncIterator[bytes],
        content_type: bytes = b"application/octet-stream",
        headers: Sequence[tuple[bytes, bytes]] = (),
        length: int | None = None,
    ) -> None:
        """Give `length` when it is known; otherwise the body is chunked."""
        if headers:
            check_headers(headers)
        self.status = status
        self.chunks = chunks
        # How long each piece may take to make; None is the listener's read_timeout. A stream that is silent for long
        # by its nature says so here, and its own waits have to be bounded.
        self.chunk_s: float | None = None
        # An answer that is passed on has its head written already, up to the value of X-Corr-ID and without framing.
        self.start = b""
        self.content_type = content_type
        self.headers = headers
        self.length = length


HandlerAnswer: TypeAlias = (
    "msgspec.Struct | dict[str, Any] | WrittenJson | AcceptedJson | Response | StreamResponse | RelayedResponse"
    " | Refusal | PenstockError | None"
)
"""What a handler answers with: a struct or a dictionary is the JSON of a 200, None a 204, an error its problem.

A `Refusal` is an error whose answer is prebuilt: for what a handler refuses in numbers.
"""

HandlerResult: TypeAlias = "HandlerAnswer | Promise | asyncio.Future[Any] | Coroutine[Any, Any, HandlerAnswer]"
"""What a handler may return: an answer, or one of three things that bring one later. Anything else is a bug: 500."""
