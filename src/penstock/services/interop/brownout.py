"""When the bridge sheds work; pure.

The service counts what it answers and what the services behind it answer, in buckets of one second. Once a second the
sentinel asks for a decision. Three things turn brownout on: too many errors over five minutes, a slow downstream over
one minute, or a work queue that was nearly full for a whole minute. It turns off only when all three are back at four
fifths of their limits and none of them was above its limit for the last half minute: a value that swings around its
limit must not switch the bridge on and off.

Errors are our own 500 and 504 and calls that failed. Our 4xx answers are the caller's fault and our 503 answers are the
brownout itself: neither is a sample at all, so that no flood of bad requests can dilute the rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

_TICK_S: Final = 1.0
_PERCENTILE: Final = 0.95
_OWN_FAILURES: Final = frozenset({500, 504})


@dataclass(frozen=True, kw_only=True, slots=True)
class BrownoutLimits:
    """The seed's thresholds, and how the way back is measured."""

    error_rate: float = 0.01
    error_window_s: int = 300
    samples_min: int = 100
    p95_s: float = 0.5
    p95_window_s: int = 60
    calls_min: int = 20
    queue_fill: float = 0.8
    queue_s: float = 60.0
    hold_s: float = 30.0
    clear_at: float = 0.8


class BrownoutState(NamedTuple):
    """What the sentinel tells everybody: whether work is shed, why, and since when."""

    active: bool = False
    reasons: tuple[str, ...] = ()
    since: float = 0.0


@dataclass(slots=True)
class _Second:
    """What happened in one second. `slow`: calls at or above the limit; `slowish`: at or above its clear level."""

    at: int = -1
    samples: int = 0
    failures: int = 0
    calls: int = 0
    slow: int = 0
    slowish: int = 0


@dataclass(slots=True)
class _Sum:
    samples: int = 0
    failures: int = 0
    calls: int = 0
    slow: int = 0
    slowish: int = 0


class Brownout:
    """The bridge's error rate, downstream latency and queue pressure, and the decision made of them."""

    def __init__(self, limits: BrownoutLimits | None = None) -> None:
        """Start with nothing seen and no brownout."""
        self.limits = limits or BrownoutLimits()
        self._seconds = [_Second() for _ in range(max(self.limits.error_window_s, self.limits.p95_window_s))]
        self._queue_high_since: float | None = None
        # When any value was last above its limit.
        self._last_trigger = 0.0
        self.state = BrownoutState()

    # --- what happens ------------------------------------------------------------------------------------------------

    def note_answer(self, now: float, status: int) -> None:
        """Count one of our answers; only good ones and our own failures are samples."""
        if status < 400 or status in _OWN_FAILURES:
            second = self._second(now)
            second.samples += 1
            second.failures += status in _OWN_FAILURES

    def note_call(self, now: float, elapsed_s: float, *, failed: bool) -> None:
        """Count one call of a service behind."""
        second, limits = self._second(now), self.limits
        second.samples += 1
        second.failures += failed
        second.calls += 1
        second.slow += elapsed_s >= limits.p95_s
        second.slowish += elapsed_s >= limits.p95_s * limits.clear_at

    def note_left_out(self, now: float) -> None:
        """Count a call that an open breaker kept back: it failed, and says nothing about latency."""
        second = self._second(now)
        second.samples += 1
        second.failures += 1

    def _second(self, now: float) -> _Second:
        at = int(now / _TICK_S)
        second = self._seconds[at % len(self._seconds)]
        if second.at != at:
            second.at, second.samples, second.failures = at, 0, 0
            second.calls = second.slow = second.slowish = 0
        return second

    # --- the decision ------------------------------------------------------------------------------------------------

    def look(self, now: float, queue_fill: float) -> BrownoutState:
        """Decide once; `queue_fill` is the filled part of the work queue, 0 to 1."""
        above = self._reasons(now, queue_fill, 1.0)
        if above:
            self._last_trigger = now
            since = self.state.since if self.state.active else now
            self.state = BrownoutState(active=True, reasons=above, since=since)
        elif self.state.active and self._may_clear(now, queue_fill):
            self.state = BrownoutState(since=now)
        return self.state

    def _may_clear(self, now: float, queue_fill: float) -> bool:
        held = now - self._last_trigger >= self.limits.hold_s
        return held and not self._reasons(now, queue_fill, self.limits.clear_at)

    def _reasons(self, now: float, queue_fill: float, part: float) -> tuple[str, ...]:
        """Name what is at or above this part of its limit."""
        limits = self.limits
        errors, calls = self._sum(now, limits.error_window_s), self._sum(now, limits.p95_window_s)
        enough = errors.samples >= limits.samples_min
        slow = calls.slow if part >= 1.0 else calls.slowish
        found = {
            "error_rate": enough and errors.failures >= limits.error_rate * part * errors.samples,
            "p95": calls.calls >= limits.calls_min and _is_p95(slow, calls.calls),
            "queue_pressure": self._queue_is_high(now, queue_fill, part),
        }
        return tuple(reason for reason, holds in found.items() if holds)

    def _queue_is_high(self, now: float, fill: float, part: float) -> bool:
        """Tell whether the queue was above its limit for a minute, or now is above the level at which it clears."""
        if part < 1.0:
            return fill > self.limits.queue_fill * part
        if fill <= self.limits.queue_fill:
            self._queue_high_since = None
            return False
        if self._queue_high_since is None:
            self._queue_high_since = now
        return now - self._queue_high_since >= self.limits.queue_s

    def _sum(self, now: float, window_s: int) -> _Sum:
        newest, total = int(now / _TICK_S), _Sum()
        for second in self._seconds:
            if newest - window_s < second.at <= newest:
                total.samples += second.samples
                total.failures += second.failures
                total.calls += second.calls
                total.slow += second.slow
                total.slowish += second.slowish
        return total


def _is_p95(slow: int, calls: int) -> bool:
    """Tell whether the 95th percentile of the calls is one of the slow ones (nearest rank)."""
    rank = math.ceil(_PERCENTILE * calls)
    return slow >= calls - rank + 1
