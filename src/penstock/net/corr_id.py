"""Correlation ids: the caller's if it is usable, else a new UUIDv7 that costs well under a microsecond."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_USABLE: Final = re.compile(rb"[\x20-\x7e]{1,64}")
# Three digits, a dash, twelve digits.
_TAIL_CHARS: Final = 16
_POOL_TAILS: Final = 512
# The counter's three digits and what follows them up to the random part: the variant is `10` and two bits of the
# sixty-two that are ours to choose; they stay `10` as well.
_COUNTS: Final = [b"%03x-a" % count for count in range(0x1000)]
_COUNTER_START_MAX: Final = 0x7FF
_COUNTER_MAX: Final = 0xFFF


class CorrIds:
    """Make UUIDv7 texts that sort in the order they were made, also within a millisecond.

    The 12 bits after the version count up within a millisecond from a random start (RFC 9562, method 1); the
    last 60 bits are random. When the counter runs out, or the wall clock goes back, the time is run ahead.
    """

    __slots__ = ("_counter", "_ms", "_prefix", "_tails", "_wall")

    def __init__(self, wall: Callable[[], float]) -> None:
        """Take the wall clock: the id stores its time."""
        self._wall = wall
        self._ms = -1
        self._prefix = b""
        self._counter = 0
        self._tails: list[bytes] = []

    def pick(self, given: bytes | None) -> bytes:
        """Return the caller's id if it is 1 to 64 printable ASCII characters, else a new one."""
        if given is not None and _USABLE.fullmatch(given):
            return given
        return self.make()

    def make(self) -> bytes:
        """Return a new id as text."""
        ms = int(self._wall() * 1000)
        if ms > self._ms:
            self._enter(ms)
        elif self._counter >= _COUNTER_MAX:
            self._enter(self._ms + 1)
        self._counter = counter = self._counter + 1
        tails = self._tails or self._refill()
        return self._prefix + _COUNTS[counter] + tails.pop()

    def _enter(self, ms: int) -> None:
        self._ms = ms
        digits = f"{ms:012x}"
        self._prefix = f"{digits[:8]}-{digits[8:]}-7".encode("ascii")
        tails = self._tails or self._refill()
        self._counter = int(tails.pop()[:3], 16) & _COUNTER_START_MAX

    def _refill(self) -> list[bytes]:
        """Draw random digits for the next ids from the system, many at once."""
        drawn = bytearray(os.urandom(_POOL_TAILS * _TAIL_CHARS // 2).hex().encode("ascii"))
        drawn[3::_TAIL_CHARS] = b"-" * _POOL_TAILS
        texts = bytes(drawn)
        self._tails = [texts[at : at + _TAIL_CHARS] for at in range(0, len(texts), _TAIL_CHARS)]
        return self._tails
