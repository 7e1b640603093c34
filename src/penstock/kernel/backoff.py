"""How long to wait before trying again: the seeds' schedules as data, and a budget that bounds retries.

Everything here is pure: randomness and time come in as arguments.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

MAX_TRIES = 3


class Rng(Protocol):
    """The part of `random.Random` that jitter needs."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Stepped:
    """A list of windows, one for each retry; the delay is drawn from its window, the last window repeats."""

    windows_s: tuple[tuple[float, float], ...]
    cap_s: float

    def delay(self, attempt: int, rng: Rng) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (the first is 0)."""
        low, high = self.windows_s[min(attempt, len(self.windows_s) - 1)]
        return min(low + (high - low) * rng.random(), self.cap_s)


@dataclass(frozen=True, slots=True)
class Doubling:
    """A window that doubles with each retry up to a cap: 50-100, 100-200, 200-400 ms and so on."""

    low_s: float
    high_s: float
    cap_s: float

    def delay(self, attempt: int, rng: Rng) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (the first is 0)."""
        factor = 2.0 ** min(attempt, 63)
        return min((self.low_s + (self.high_s - self.low_s) * rng.random()) * factor, self.cap_s)


@dataclass(frozen=True, slots=True)
class FullJitter:
    """Uniform between 0 and base x 2^attempt, capped: spreads many callers best."""

    base_s: float
    cap_s: float

    def delay(self, attempt: int, rng: Rng) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (the first is 0)."""
        return rng.random() * min(self.base_s * 2.0 ** min(attempt, 63), self.cap_s)


Backoff = Stepped | Doubling | FullJitter

CALLS = Doubling(0.050, 0.100, cap_s=2.0)
INTEROP = Stepped(((0.050, 0.100), (0.200, 0.400), (0.800, 1.600)), cap_s=2.0)
MAILBOX = FullJitter(0.200, cap_s=60.0)


class RetryBudget:
    """Retries may be a tenth of the calls of the last 10 s, but never less than 3 a second: no retry storms."""

    __slots__ = ("_calls", "_floor_per_s", "_ratio", "_retries", "_window_s")

    def __init__(self, *, ratio: float = 0.1, floor_per_s: float = 3.0, window_s: int = 10) -> None:
        """Keep one count for each second of the window."""
        self._ratio = ratio
        self._floor_per_s = floor_per_s
        self._window_s = window_s
        self._calls: deque[tuple[int, int]] = deque(maxlen=window_s)
        self._retries: deque[tuple[int, int]] = deque(maxlen=window_s)

    def record_call(self, now: float) -> None:
        """Count a first try."""
        _count(self._calls, int(now))

    def allow(self, now: float) -> bool:
        """Spend one retry if the budget has one; a refusal costs nothing."""
        second = int(now)
        share = self._ratio * self._within(self._calls, second)
        floor = self._floor_per_s * self._window_s
        if self._within(self._retries, second) < max(share, floor):
            _count(self._retries, second)
            return True
        return False

    def _within(self, counts: deque[tuple[int, int]], second: int) -> int:
        return sum(count for at, count in counts if at > second - self._window_s)


def _count(counts: deque[tuple[int, int]], second: int) -> None:
    if counts and counts[-1][0] == second:
        counts[-1] = (second, counts[-1][1] + 1)
    else:
        counts.append((second, 1))
