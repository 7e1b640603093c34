"""Wall time for what is stored, without the steps of the system's clock. Pure.

A message's age decides when it expires, how long its idem_key is remembered and when it is swept out. Ages are
differences of stored times, so the clock that stores them must not jump: an operator who corrects the time, or a time
service that does, must not make messages old or young. `SteadyClock` follows the monotonic clock from one anchor, and
moves towards the system's wall clock by at most one part in two hundred: a corrected clock is followed in the end, and
an age is never wrong by more than half a percent.

Across a restart the anchor is the last stored time plus the time that really passed, where the machine was not booted
in between. Where it was, nobody knows how long it was off: the system's clock is believed, but never before the last
stored time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SLEW: Final = 0.005
STEP_MS: Final = 5_000.0
# Clocks that were never set begin years ago: such a time is no anchor to hold on to. (2024-01-01)
_SET_MS: Final = 1_704_067_200_000


class ClockStamp(NamedTuple):
    """One instant as the machine tells it."""

    wall_ms: float
    uptime_ms: float
    # Names this boot of the machine; empty where nobody can.
    boot: bytes


class SteadyClock:
    """Wall milliseconds that go on evenly while the process lives: the monotonic clock plus `offset`."""

    __slots__ = ("_at", "_told", "offset")

    def __init__(self, now_ms: float, start_ms: float) -> None:
        """Begin at `start_ms`, when the monotonic clock says `now_ms`."""
        self._at = now_ms
        self.offset = start_ms - now_ms
        self._told = 0.0

    def follow(self, now_ms: float, system_ms: float) -> None:
        """Move towards the system's wall clock, which says `system_ms` at `now_ms`; to be called every now and then."""
        away = system_ms - now_ms - self.offset
        if now_ms + self.offset < _SET_MS <= system_ms:
            self.offset += away
        elif away:
            most = max(0.0, now_ms - self._at) * SLEW
            self.offset += min(max(away, -most), most)
        self._at = now_ms

    def stepped_ms(self, now_ms: float, system_ms: float) -> float:
        """Return by how much the system's clock jumped since this was last asked; 0 for less than a few seconds."""
        away = system_ms - now_ms - self.offset
        jumped = away - self._told
        if abs(jumped) < STEP_MS:
            return 0.0
        self._told = away
        return jumped


def starting_time(before: ClockStamp | None, now: ClockStamp) -> tuple[float, float]:
    """Choose where the clock of a new life begins; returns it, and by how much the system's clock disagrees."""
    if before is None or before.wall_ms < _SET_MS or now.wall_ms < _SET_MS:
        return now.wall_ms, 0.0
    if before.boot and before.boot == now.boot and now.uptime_ms >= before.uptime_ms:
        expected = before.wall_ms + now.uptime_ms - before.uptime_ms
        away = now.wall_ms - expected
        return (expected, away) if abs(away) >= STEP_MS else (max(now.wall_ms, before.wall_ms), 0.0)
    return max(now.wall_ms, before.wall_ms), min(0.0, now.wall_ms - before.wall_ms)
