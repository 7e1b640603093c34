"""Chunked bodies of answers: cut by our own rules, as strict as the sizes, extensions and trailers need."""

from __future__ import annotations

import re
from typing import Final

from penstock.kernel.errors import DownstreamUnavailable

CHUNK_LINE_BYTES_MAX: Final = 1024
TRAILER_BYTES_MAX: Final = 4 * 1024
TRAILERS_MAX: Final = 16

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*"
_EXTENSION: Final = rb";" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb'|"[\t\x20\x21\x23-\x5b\x5d-\x7e]*"))?'
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:" + _EXTENSION + rb")*\r\n")
_TRAILER: Final = re.compile(rb"(" + _TOKEN + rb"):" + _TEXT + rb"\r\n")
_FRAMING_FIELDS: Final = frozenset((b"content-length", b"transfer-encoding"))


def bad_answer(detail: str) -> DownstreamUnavailable:
    """Say what is wrong with an answer."""
    return DownstreamUnavailable(detail, status=502)


class AnswerChunks:
    """Cut a chunked body; trailers are checked, counted and dropped."""

    __slots__ = ("_left", "_line", "_take", "_trailer_bytes", "_trailers", "done")

    def __init__(self) -> None:
        """Start before the first chunk."""
        self.done = False
        self._left = 0
        self._line = b""
        self._take = self._size
        self._trailers = 0
        self._trailer_bytes = 0

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        """Append the body found in `data` and return how many bytes belong to this answer."""
        at, size = 0, len(data)
        while at < size and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
            else:
                at = self._read_line(data, at)
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1
        self._line += data[at : end or at + CHUNK_LINE_BYTES_MAX + 1]
        if len(self._line) > (TRAILER_BYTES_MAX if self._take == self._trailer else CHUNK_LINE_BYTES_MAX):
            raise bad_answer("A chunk line or trailer is too long.")
        if not end:
            return min(len(data), at + CHUNK_LINE_BYTES_MAX + 1)
        line, self._line = self._line, b""
        self._take(line)
        return end

    def _size(self, line: bytes) -> None:
        match = _CHUNK_LINE.fullmatch(line)
        if match is None:
            raise bad_answer("A chunk size is malformed.")
        self._left = int(match[1], 16)
        self._take = self._data_end if self._left else self._trailer

    def _data_end(self, line: bytes) -> None:
        if line != b"\r\n":
            raise bad_answer("A chunk is longer than its size.")
        self._take = self._size

    def _trailer(self, line: bytes) -> None:
        if line == b"\r\n":
            self.done = True
            return
        self._trailers += 1
        self._trailer_bytes += len(line)
        match = _TRAILER.fullmatch(line)
        if match is None or match[1].lower() in _FRAMING_FIELDS:
            raise bad_answer("A trailer is malformed.")
        if self._trailers > TRAILERS_MAX or self._trailer_bytes > TRAILER_BYTES_MAX:
            raise bad_answer("The answer has too many trailers.")
