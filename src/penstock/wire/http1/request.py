"""Requests out of a connection's bytes: a pure state machine, bytes in, heads and body pieces out.

The head is framed here and then handed to llhttp whole, in one call; llhttp stays the authority on what a head may
hold. Whatever is raised is final for the connection: after a fault nothing more is parsed.
"""

from __future__ import annotations

from typing import Final

import httptools

from penstock.kernel.errors import Malformed, PenstockError
from penstock.kernel.memo import Memo
from penstock.wire.http1 import head as http1_head
from penstock.wire.http1.chunked import ChunkedBody
from penstock.wire.http1.head import (
    CHUNKED,
    HeadScan,
    HttpHead,
    StartLine,
)

_BLANK: Final = b"\r\n\r\n"
_CR: Final = 13
_LINES_KEPT: Final = 1024
_LINE_BYTES_KEPT: Final = 256
_MEMO_BYTES_MAX: Final = 1024
HEADS_KEPT: Final = 1024
_NAMES_KEPT: Final = 1024
_NAME_BYTES_KEPT: Final = 64


class _LowerNames(dict[bytes, bytes]):
    """Field names in lower case: clients write the same few. Bounded: begun anew when it is full."""

    def __missing__(self, name: bytes) -> bytes:
        lower = name.lower()
        if len(name) <= _NAME_BYTES_KEPT:
            if len(self) >= _NAMES_KEPT:
                self.clear()
            self[name] = lower
        return lower


_LOWER: Final = _LowerNames()

# Request lines repeat: the same few routes, over and over. A pure function of the line, so one memo serves everybody.
start_lines: Final[Memo[bytes, StartLine]] = Memo(_LINES_KEPT)


def _start_line(line: bytes) -> StartLine:
    start = http1_head.parse_start_line(line)
    return start_lines.put(line, start) if len(line) <= _LINE_BYTES_KEPT else start


class _Fields(dict[bytes, bytes]):
    """Where the parser puts the fields: its callback is `dict.setdefault` itself, no Python runs per field."""

    __slots__ = ("on_header",)

    def __init__(self) -> None:
        super().__init__()
        self.on_header = self.setdefault


class RequestReader:
    """One connection's requests, in order: `receive`, then `next_head`, then `read_body` until `body_done`."""

    __slots__ = (
        "_chunked", "_fields", "_heads", "_left", "_parser", "_scan", "_synced", "body_done", "data", "pos",
    )  # fmt: skip

    def __init__(self, heads: Memo[bytes, HttpHead] | None = None) -> None:
        """Start at the beginning of a message; readers that are given the same `heads` remember together."""
        # What was received, and how far it was read; the owner looks at both on every request.
        self.data = b""
        self.pos = 0
        self._fields = _Fields()
        self._parser = httptools.HttpRequestParser(self._fields)
        self._scan = HeadScan()
        self._left = 0
        self._chunked: ChunkedBody | None = None
        # Parsed heads by their bytes: clients repeat the same few, and a head is a pure function of its bytes.
        self._heads: Memo[bytes, HttpHead] = Memo(HEADS_KEPT) if heads is None else heads
        self._synced = True
        self.body_done = True

    @property
    def pending_bytes(self) -> int:
        """Return how many bytes were received and not yet read."""
        return len(self.data) - self.pos

    @property
    def body_left(self) -> int | None:
        """Return how much of the body is still to be read; None while it is chunked."""
        return None if self._chunked is not None else self._left

    def receive(self, data: bytes) -> None:
        """Take the next bytes of the connection."""
        if self.pos == len(self.data):
            self.data = data
        else:
            self.data = self.data[self.pos :] + data
        self.pos = 0

    def drop_pending(self) -> int:
        """Forget what was received and not read; return how much it was."""
        dropped = self.pending_bytes
        self.data, self.pos = b"", 0
        self._scan.restart()
        return dropped

    def next_head(self) -> HttpHead | None:
        """Return the next head once it is complete; raise on the first fault in it."""
        data, pos = self.data, self.pos
        if pos == len(data):
            return None
        # One CRLF before a request line is ignored (RFC 9112, 2.2), a second one is a fault.
        start = pos + 2 if data.startswith(b"\r\n", pos) else pos
        end = data.find(_BLANK, start + self._scan.seen_bytes)
        if end < 0:
            # A lone CR may become the one CRLF that is ignored.
            if data[pos] != _CR or pos + 1 < len(data):
                self._scan.check(data, start)
            return None
        raw = data[start : end + 4]
        self.pos = end + 4
        # Three bytes leave no mark here, and a line that ends within them is a fault already.
        if self._scan.seen_bytes:
            self._scan.restart()
        head = self._heads.get(raw)
        if head is None:
            head = self._read_head(raw)
        else:
            self._synced = False
        length = head.length
        if length:
            self._open_body(raw, length)
        return head

    def _read_head(self, raw: bytes) -> HttpHead:
        lines = raw.count(b"\n")
        if len(raw) > http1_head.REQUEST_LINE_BYTES_MAX or lines > http1_head.FIELDS_MAX + 2:
            HeadScan().check(raw, 0)
        line = raw[: raw.find(b"\r\n")]
        start = start_lines.get(line) or self._read_start_line(line, raw)
        headers, repeats = self._read_fields(raw, lines - 2)
        head = HttpHead(start, headers, repeats)
        self._synced = True
        if len(raw) <= _MEMO_BYTES_MAX and head.length != CHUNKED:
            # A head with a signature or an id of its own never comes again.
            self._heads.put_again(raw, head)
        return head

    def _read_start_line(self, line: bytes, raw: bytes) -> StartLine:
        """Read a line not seen before; a fault of the lines as such comes first, as it does in a prefix."""
        try:
            return _start_line(line)
        except PenstockError:
            HeadScan().check(raw, 0)
            raise

    def _read_fields(self, raw: bytes, count: int) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]] | None]:
        """Let the parser judge the head and take the fields; a bare CR or LF anywhere is refused there.

        Where a name came more than once, the fields are also given one by one.
        """
        fields = self._fields
        fields.clear()
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            raw = self._feed_without_upgrade(raw)
            count = raw.count(b"\n") - 2
        except httptools.HttpParserError as exc:
            raise Malformed(f"The request head is malformed: {exc}.") from exc
        # The parser takes off the blanks before a value, not those behind it.
        lower = _LOWER
        headers = {lower[name]: value.rstrip() for name, value in fields.items()}
        repeats = None
        if len(headers) != count:
            repeats = http1_head.fields_of(raw)
            headers = http1_head.join_repeats(repeats)
        if b"_" in raw or not raw.isascii():
            http1_head.check_fields(headers)
        return headers, repeats

    def _feed_without_upgrade(self, raw: bytes) -> bytes:
        """Ignore the upgrade: a fresh parser gets the head without it, so that the body is framed."""
        cleaned = http1_head.without_upgrade(raw)
        self._fields.clear()
        self._parser = httptools.HttpRequestParser(self._fields)
        try:
            self._parser.feed_data(cleaned)
        except httptools.HttpParserError as exc:
            raise Malformed(f"The request head is malformed: {exc}.") from exc
        return cleaned

    def _open_body(self, raw: bytes, length: int) -> None:
        self.body_done = False
        if length == CHUNKED:
            self._chunked = ChunkedBody(http1_head.without_upgrade(raw))
            # The head's parser would wait for this body: the next head gets a fresh one.
            self._parser = httptools.HttpRequestParser(self._fields)
        else:
            self._left = length

    def bound_body(self, bytes_max: int) -> None:
        """Refuse a chunk that would make the body longer than this as soon as it is announced."""
        if self._chunked is not None:
            self._chunked.bytes_max = bytes_max

    def take_body(self) -> bytes:
        """Return a body of known length that is here as a whole."""
        end = self.pos + self._left
        piece = self.data[self.pos : end]
        self.pos = end
        self._left = 0
        self.body_done = True
        if self._synced:
            self._parser.feed_data(piece)
        return piece

    def read_body(self) -> bytes:
        """Return the body's bytes that are there; `body_done` turns true with the last of them."""
        if self._chunked is not None:
            return self._read_chunked(self._chunked)
        pos, left = self.pos, self._left
        piece = self.data[pos : pos + left]
        self.pos = pos + len(piece)
        self._left = left = left - len(piece)
        if self._synced:
            self._parser.feed_data(piece)
        self.body_done = not left
        return piece

    def _read_chunked(self, chunked: ChunkedBody) -> bytes:
        pieces: list[bytes] = []
        self.pos = chunked.feed(self.data, self.pos, pieces)
        if chunked.done:
            self._chunked = None
            self.body_done = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
