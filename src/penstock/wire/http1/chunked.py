"""Chunked bodies: our own framing, walked in step with the parser, so that both must agree on where the body ends."""

from __future__ import annotations

import re
from typing import Final

import httptools

from penstock.kernel.errors import Malformed, OverLimit, PenstockError, forget_where
from penstock.wire.plain_words import size_text

CHUNK_OVERHEAD_BYTES_MAX: Final = 16 * 1024
TRAILER_BYTES_MAX: Final = 4 * 1024
TRAILERS_MAX: Final = 16
STEPS_A_CALL: Final = 512
_SIZE_LINE_BYTES_MAX: Final = 4 * 1024
# Without a bound of the owner's: nothing that could be waited for.
_BODY_BYTES_MAX: Final = 1 << 62
# Sixteen digits are 2^64 - 1 already; extensions are counted, never read.
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?")

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILERS: Final = 3


class _Witness:
    """What the parser says about the same bytes."""

    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def on_message_complete(self) -> None:
        """Note that the parser saw the end."""
        self.complete = True


class ChunkedBody:
    """Take a chunked body apart as its bytes arrive."""

    __slots__ = (
        "_data_bytes", "_fault", "_left", "_overhead_bytes", "_parser", "_state", "_trailers", "_witness",
        "bytes_max", "done",
    )  # fmt: skip

    def __init__(self, head: bytes) -> None:
        """Give the parser the head again: it then frames the body by the same fields."""
        self._witness = _Witness()
        self._parser = httptools.HttpRequestParser(self._witness)
        self._parser.feed_data(head)
        self._state = _SIZE
        self._left = 0
        self._data_bytes = 0
        self._overhead_bytes = 0
        self._trailers = 0
        self._fault: PenstockError | None = None
        self.bytes_max = _BODY_BYTES_MAX
        self.done = False

    def feed(self, data: bytes, pos: int, pieces: list[bytes]) -> int:
        """Append the data that came to `pieces`; return where the unread bytes start.

        A call takes a bounded number of steps: tiny chunks cost more than their bytes tell. A fault behind data waits
        for the next call: what came before it is judged first, however the bytes were split.
        """
        if self._fault is not None:
            raise self._fault
        start = pos
        try:
            for _ in range(STEPS_A_CALL):
                if self.done or pos == (next_pos := self._confirmed_step(data, pos, pieces)):
                    break
                pos = next_pos
        except PenstockError as fault:
            if pos == start:
                raise
            self._fault = forget_where(fault)
        return pos

    def _confirmed_step(self, data: bytes, pos: int, pieces: list[bytes]) -> int:
        next_pos = self._step(data, pos, pieces)
        if next_pos != pos:
            self._confirm(data[pos:next_pos])
        return next_pos

    def _step(self, data: bytes, pos: int, pieces: list[bytes]) -> int:
        if self._state == _DATA:
            return self._take_data(data, pos, pieces)
        if self._state == _DATA_END:
            return self._take_data_end(data, pos)
        end = data.find(b"\n", pos) + 1
        self._check_bytes((end or len(data)) - pos)
        if not end:
            return pos
        self._overhead_bytes += end - pos
        line = data[pos:end]
        if not line.endswith(b"\r\n") or line.count(b"\r") != 1:
            raise Malformed("A chunk line does not end in CRLF.")
        self._take_line(line[:-2])
        return end

    def _take_data(self, data: bytes, pos: int, pieces: list[bytes]) -> int:
        piece = data[pos : pos + self._left]
        if piece:
            pieces.append(piece)
            self._data_bytes += len(piece)
            self._left -= len(piece)
            if not self._left:
                self._state = _DATA_END
        return pos + len(piece)

    def _take_data_end(self, data: bytes, pos: int) -> int:
        ending = data[pos : pos + 2]
        if not b"\r\n".startswith(ending):
            raise Malformed("Chunk data is not followed by CRLF.")
        if len(ending) < 2:
            return pos
        self._check_bytes(2)
        self._overhead_bytes += 2
        self._state = _SIZE
        return pos + 2

    def _take_line(self, line: bytes) -> None:
        if self._state == _TRAILERS:
            self._take_trailer(line)
            return
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise Malformed("A chunk size is not a hexadecimal number.")
        self._left = int(match[1], 16)
        if self._data_bytes + self._left > self.bytes_max:
            said = f"The body is over the limit of {size_text(self.bytes_max)}."
            raise OverLimit(said, limit="body", limit_value=self.bytes_max)
        self._state = _DATA if self._left else _TRAILERS
        if not self._left:
            self._overhead_bytes = 0

    def _take_trailer(self, line: bytes) -> None:
        """Count trailers and drop them: a `Host` or `Authorization` down here never reaches anybody."""
        if not line:
            self.done = True
            return
        self._trailers += 1
        if self._trailers > TRAILERS_MAX:
            raise OverLimit(
                f"The body has more than {TRAILERS_MAX} trailers.",
                limit="trailers",
                limit_value=TRAILERS_MAX,
                status=431,
            )

    def _check_bytes(self, line_bytes: int) -> None:
        """Bound the bytes that are not data: a fixed number, and an eighth of the data beyond it."""
        overhead_bytes = self._overhead_bytes + line_bytes
        if self._state == _TRAILERS:
            if overhead_bytes > TRAILER_BYTES_MAX:
                raise OverLimit(
                    f"The trailers are over the limit of {size_text(TRAILER_BYTES_MAX)}.",
                    limit="trailer_bytes",
                    limit_value=TRAILER_BYTES_MAX,
                    status=431,
                )
        elif line_bytes > _SIZE_LINE_BYTES_MAX or (overhead_bytes > CHUNK_OVERHEAD_BYTES_MAX + (self._data_bytes >> 3)):
            raise OverLimit("The chunk framing is out of proportion to the data.", limit="chunk_overhead")

    def _confirm(self, raw: bytes) -> None:
        """Walk the parser over the same bytes: framing is accepted only when both read it alike."""
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserError as exc:
            raise Malformed(f"The chunked body is malformed: {exc}.") from exc
        if self._witness.complete != self.done:
            raise Malformed("The end of the chunked body is ambiguous.")
