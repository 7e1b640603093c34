"""Bounded decompression: output comes in steps of at most 64 KiB, and every step is measured before the next.

A bomb is refused at the first step that passes the ratio or the absolute cap, whichever comes first. A step is also
a bounded piece of work: input that gives nothing still comes out as empty steps, so that whoever takes them can stop.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Protocol

import zstandard

from penstock.kernel.errors import Malformed, OverLimit, Unsupported
from penstock.wire.plain_words import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_BYTES: Final = 64 * 1024
_ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
# The costliest small blocks take a few microseconds each.
_ZSTD_BLOCKS_A_STEP: Final = 32
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_HEADER: Final = 0
_BLOCKS: Final = 1
_CHECKSUM: Final = 2
_RLE: Final = 1
_RESERVED: Final = 3
_GZIP: Final = 31
_ZLIB: Final = 15


class _Decoder(Protocol):
    """One encoding: bytes in, steps out."""

    done: bool
    # What is still to come by the body's own word; unknown below zero.
    owed_bytes: int

    def steps(self, data: bytes) -> Iterator[bytes]:
        """Yield the output of `data` in steps, empty ones among them."""
        ...


class _Zlib:
    """gzip and deflate."""

    __slots__ = ("_stream", "done", "owed_bytes")

    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)
        self.done = False
        self.owed_bytes = -1

    def steps(self, data: bytes) -> Iterator[bytes]:
        # Input is bounded like output: a megabyte of empty blocks is one call's work otherwise.
        for at in range(0, len(data), STEP_BYTES):
            part = data[at : at + STEP_BYTES]
            while part and not self.done:
                yield self._decompress(part)
                part = self._stream.unconsumed_tail
            if self.done and (part or self._stream.unused_data or at + STEP_BYTES < len(data)):
                raise Malformed("Bytes follow the end of the compressed body.")
        # What the window still holds comes out only when it is asked for.
        while not self.done and (step := self._decompress(b"")):
            yield step
        if self.done and self._stream.unused_data:
            raise Malformed("Bytes follow the end of the compressed body.")

    def _decompress(self, part: bytes) -> bytes:
        try:
            step = self._stream.decompress(part, STEP_BYTES)
        except zlib.error as exc:
            raise Malformed("The compressed body is damaged.") from exc
        self.done = self._stream.eof
        return step


class _Zstd:
    """zstd. The library does not bound the output of a call, so the frame is walked and fed one block at a time.

    A block gives at most 128 KiB whatever it holds, which a byte count of the input could not promise.
    """

    __slots__ = ("_pending", "_state", "_stream", "_summed", "done", "owed_bytes")

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj()
        self._pending = b""
        self._state = _HEADER
        self._summed = False
        # What the frame says it holds, less what came out. Fed in blocks, the library does not look.
        self.owed_bytes = -1
        self.done = False

    def steps(self, data: bytes) -> Iterator[bytes]:
        data, at = self._pending + data, 0
        made: list[bytes] = []
        made_bytes = units = 0
        while not self.done and at + (size := self._unit_bytes(data, at)) <= len(data):
            unit = data[at : at + size]
            block = self._decompress(unit)
            at += size
            units += 1
            self._enter_next(unit)
            if block:
                made.append(block)
                made_bytes += len(block)
            if made_bytes >= STEP_BYTES or units == _ZSTD_BLOCKS_A_STEP:
                yield from _cut(b"".join(made))
                made, made_bytes, units = [], 0, 0
        self._pending = data[at:]
        yield from _cut(b"".join(made))
        if self.done and self._pending:
            raise Malformed("Bytes follow the end of the compressed body.")

    def _decompress(self, unit: bytes) -> bytes:
        try:
            block = self._stream.decompress(unit)
        except zstandard.ZstdError as exc:
            raise Malformed("The compressed body is damaged.") from exc
        if self.owed_bytes >= 0:
            self.owed_bytes -= len(block)
            if self.owed_bytes < 0:
                raise Malformed("The compressed body is longer than it says.")
        return block

    def _unit_bytes(self, data: bytes, at: int) -> int:
        """Return how many bytes the unit of the frame at `at` has, as far as the bytes here tell."""
        if self._state == _HEADER:
            return 5 if len(data) < 5 else _frame_header_bytes(data)
        if self._state == _CHECKSUM:
            return 4
        if len(data) < at + 3:
            return 3
        kind, size = _block(data[at : at + 3])
        if kind == _RESERVED or size > _ZSTD_BLOCK_BYTES_MAX:
            raise Malformed("The compressed body is damaged.")
        return 3 + (1 if kind == _RLE else size)

    def _enter_next(self, unit: bytes) -> None:
        if self._state == _HEADER:
            self._summed = bool(unit[4] & 0x04)
            self.owed_bytes = zstandard.frame_content_size(unit)
            self._state = _BLOCKS
        elif self._state == _CHECKSUM or (unit[0] & 1 and not self._summed):
            if self.owed_bytes > 0:
                raise Malformed("The compressed body is shorter than it says.")
            self.done = True
        elif unit[0] & 1:
            self._state = _CHECKSUM


def _cut(made: bytes) -> Iterator[bytes]:
    """Hand over what a few units gave in steps; nothing is one empty step."""
    yield made[:STEP_BYTES]
    for at in range(STEP_BYTES, len(made), STEP_BYTES):
        yield made[at : at + STEP_BYTES]


def _frame_header_bytes(header: bytes) -> int:
    """Read the length of a frame header off its descriptor (RFC 8878, 3.1.1.1)."""
    if not header.startswith(_ZSTD_MAGIC):
        raise Malformed("The compressed body is damaged.")
    descriptor = header[4]
    single = descriptor >> 5 & 1
    content_size = (single, 2, 4, 8)[descriptor >> 6]
    return 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size


def _block(header: bytes) -> tuple[int, int]:
    """Return the kind and size a block header names (RFC 8878, 3.1.1.2)."""
    value = int.from_bytes(header, "little")
    return value >> 1 & 3, value >> 3


def _decoder(encoding: bytes) -> _Decoder:
    name = encoding.strip().lower()
    if name in (b"gzip", b"x-gzip"):
        return _Zlib(_GZIP)
    if name == b"deflate":
        return _Zlib(_ZLIB)
    if name == b"zstd":
        return _Zstd()
    raise Unsupported("The content encoding is not one of gzip, deflate, zstd, or is stacked.", status=415)


class Inflater:
    """Inflate one body. `feed` is lazy: each step is produced, measured and handed over before the next."""

    __slots__ = ("_bytes_in", "_bytes_max", "_bytes_out", "_decoder", "_ratio_cap")

    def __init__(self, encoding: bytes, *, ratio_cap: int, bytes_max: int) -> None:
        """Refuse unknown and stacked encodings at once."""
        self._decoder = _decoder(encoding)
        self._ratio_cap = ratio_cap
        self._bytes_max = bytes_max
        self._bytes_in = 0
        self._bytes_out = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` inflates to, in steps of at most 64 KiB; an empty step is work that gave nothing yet."""
        if not data:
            return
        self._bytes_in += len(data)
        for step in self._decoder.steps(data):
            self._measure(len(step))
            yield step

    def finish(self) -> None:
        """Refuse a body that ended before its compressed stream did."""
        if not self._decoder.done:
            raise Malformed("The compressed body is cut off.")

    def _measure(self, step_bytes: int) -> None:
        self._bytes_out += step_bytes
        if self._bytes_out > self._bytes_in * self._ratio_cap:
            said = f"The body grows more than {self._ratio_cap} times when it is inflated."
            raise OverLimit(said, limit="inflate_ratio", limit_value=self._ratio_cap)
        # One that says it will be too large need not be inflated to be believed.
        if self._bytes_out + max(0, self._decoder.owed_bytes) > self._bytes_max:
            said = f"The inflated body is over the limit of {size_text(self._bytes_max)}."
            raise OverLimit(said, limit="inflate_bytes", limit_value=self._bytes_max)
