"""When a second request is worth its cost: after the 95th percentile, for one call in twenty at most. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SAMPLES_MAX: Final = 256
SAMPLES_MIN: Final = 32
# The percentile is worked out anew after so many calls; in between it hardly moves.
RENEW_EVERY: Final = 32
# No call is late before this time has passed, however fast the others were.
SOONEST_S: Final = 0.001
SHARE: Final = 0.05
SAVED_MAX: Final = 8.0


class LatencyTail:
    """The 95th percentile of the last calls of one downstream."""

    __slots__ = ("_left", "_samples", "p95_s")

    def __init__(self) -> None:
        """Start without a percentile: until enough calls were seen there are no hedges."""
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._left = SAMPLES_MIN
        self.p95_s: float | None = None

    def observe(self, elapsed_s: float) -> None:
        """Count one answered call."""
        self._samples.append(elapsed_s)
        self._left -= 1
        if self._left <= 0:
            self._left = RENEW_EVERY
            ranked = sorted(self._samples)
            self.p95_s = max(ranked[(len(ranked) * 95) // 100], SOONEST_S)


class HedgeBudget:
    """Each call earns a twentieth of a hedge. The budget starts empty, so hedges never exceed 5 % of the calls."""

    __slots__ = ("_earned",)

    def __init__(self) -> None:
        self._earned = 0.0

    def record_call(self) -> None:
        """Add a call's share. The sum is bounded, so that a quiet hour does not pay for a burst of hedges."""
        self._earned = min(SAVED_MAX, self._earned + SHARE)

    def take(self) -> bool:
        """Spend one hedge if it was earned."""
        # Twenty shares of a twentieth come to a little less than one.
        if self._earned < 1.0 - 1e-9:
            return False
        self._earned -= 1.0
        return True


class HedgePolicy:
    """When a second request goes out to one downstream, and whether it may."""

    __slots__ = ("_budget", "_shedding", "_tail")

    def __init__(self, shedding: Callable[[], bool]) -> None:
        """Start without credit; nothing is hedged while `shedding` says that load is being shed."""
        self._tail = LatencyTail()
        self._budget = HedgeBudget()
        self._shedding = shedding

    def observe(self, elapsed_s: float) -> None:
        """Learn how long an answer took."""
        self._tail.observe(elapsed_s)

    def begin(self) -> float | None:
        """Count a call that may be hedged; return when that is due, or None while too little is known."""
        self._budget.record_call()
        return self._tail.p95_s

    def allow(self) -> bool:
        """Spend a hedge if one was earned; never while load is shed."""
        return not self._shedding() and self._budget.take()
