"""Frames out of a byte stream: a length of four bytes, then so many bytes. Pure.

A length is checked before anything is kept for it. A frame that is too large is skipped as it arrives, so that the
requests behind it are unharmed; only one so large that skipping it would be absurd ends the connection.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 1 << 20
SKIPPED_BYTES_MAX: Final = 8 << 20
_HEAD: Final = 4


class FrameOversized(Exception):
    """The announced frame is so large that the connection is closed."""


class FrameSplitter:
    """Collects bytes and gives back whole frames; `oversized` counts those that were skipped."""

    __slots__ = ("_buffer", "_skip", "oversized")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0
        self.oversized = 0

    @property
    def pending(self) -> bool:
        """Tell whether part of a frame has arrived."""
        return bool(self._buffer) or self._skip > 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they come; return the frames they complete."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        at = 0
        while True:
            if self._skip:
                gone = min(self._skip, len(buffer) - at)
                self._skip -= gone
                at += gone
            if self._skip or len(buffer) - at < _HEAD:
                break
            length = int.from_bytes(buffer[at : at + _HEAD], "big")
            if length > FRAME_BYTES_MAX:
                at += _HEAD
                self._too_large(length)
                continue
            if len(buffer) - at - _HEAD < length:
                break
            frames.append(bytes(buffer[at + _HEAD : at + _HEAD + length]))
            at += _HEAD + length
        del buffer[:at]
        return frames

    def _too_large(self, length: int) -> None:
        self.oversized += 1
        if length > SKIPPED_BYTES_MAX:
            raise FrameOversized(f"a frame of {length} bytes was announced")
        self._skip = length


def frame(body: bytes) -> bytes:
    """Put the length in front."""
    return len(body).to_bytes(_HEAD, "big") + body
