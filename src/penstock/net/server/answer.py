"""The bytes of an answer: a prebuilt head for each status and type, with the date patched in once a second."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from penstock.net.message import JSON, StreamResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.net.message import RelayedResponse, Response

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_NO_BODY: Final = frozenset({204, 304})
_REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_HEADS_KEPT: Final = 256


class AnswerHeads:
    """Build answer heads; everything that repeats is made once a second."""

    __slots__ = ("_heads", "_wall", "date_line", "json_start", "until")

    def __init__(self, wall: Callable[[], float]) -> None:
        """Take the wall clock for the Date field."""
        self._wall = wall
        self.until = -1.0
        self._heads: dict[tuple[int, bytes], bytes] = {}
        self.date_line = b""
        self.json_start = b""

    def tick(self, now: float) -> None:
        """Renew the date when `now` (monotonic) has left the second it was made in, which ends at `until`."""
        if now >= self.until:
            wall = self._wall()
            self.date_line = f"Date: {formatdate(wall, usegmt=True)}\r\n".encode("ascii")
            self.until = now + 1.0 - wall % 1.0
            self._heads.clear()
            self.json_start = self.start(200, JSON)

    def start(self, status: int, content_type: bytes) -> bytes:
        """Return everything up to the value of X-Corr-ID."""
        head = self._heads.get((status, content_type))
        return self._make(status, content_type) if head is None else head

    def _make(self, status: int, content_type: bytes) -> bytes:
        type_line = b"Content-Type: %b\r\n" % content_type if content_type and status not in _NO_BODY else b""
        head = b"HTTP/1.1 %d %b\r\n%b%bX-Corr-ID: " % (status, _REASONS.get(status, b""), self.date_line, type_line)
        if len(self._heads) < _HEADS_KEPT:
            self._heads[status, content_type] = head
        return head

    def json(self, corr: bytes, body: bytes) -> bytes:
        """Return a whole 200 with a JSON body on a connection that stays open: the common case."""
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (self.json_start, corr, len(body), body)

    def accepted(self, corr: bytes, body: bytes) -> bytes:
        """Return a whole 202 with a JSON body on a connection that stays open."""
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (self.start(202, JSON), corr, len(body), body)

    def whole(self, response: Response, corr: bytes, *, close: bool) -> bytes:
        """Return the head of a whole answer; the caller adds the body unless the method was HEAD."""
        framing = b"" if response.status in _NO_BODY else b"Content-Length: %d\r\n" % len(response.body)
        return self._head(response, corr, framing, close=close)

    def streamed(self, response: StreamResponse, corr: bytes, *, chunked: bool, close: bool) -> bytes:
        """Return the head of a streamed answer."""
        if response.length is not None:
            framing = b"Content-Length: %d\r\n" % response.length
        else:
            framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        return self._head(response, corr, framing, close=close)

    @staticmethod
    def relayed(answer: RelayedResponse, corr: bytes, *, close: bool) -> bytes:
        """Return the head of an answer that is passed on whole."""
        return b"%b%b\r\n%b\r\n" % (answer.start, corr, _CLOSE if close else b"")

    def _head(self, response: Response | StreamResponse, corr: bytes, framing: bytes, *, close: bool) -> bytes:
        written = response.start if isinstance(response, StreamResponse) else b""
        parts = [written or self.start(response.status, response.content_type), corr, b"\r\n", framing]
        parts += [b"%b: %b\r\n" % field for field in response.headers]
        if close:
            parts.append(_CLOSE)
        parts.append(b"\r\n")
        return b"".join(parts)


def chunk(data: bytes) -> list[bytes]:
    """Frame one piece of a chunked body."""
    return [b"%x\r\n" % len(data), data, b"\r\n"]
