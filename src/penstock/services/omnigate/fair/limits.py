"""How many requests may run at once: a fixed number, or one that follows latency. Pure.

The adaptive limit compares, route by route, the latency of the last window with a long average. Above it by more than a
tolerance means that requests wait behind each other somewhere downstream, and the limit falls in proportion; otherwise,
and only while the limit is felt, it grows. Nothing is ever sent or held back just to find out.

Three rules keep it right. First, the long average rises only while the limit holds nobody back: under overload it would
take the overload for normal. Second, when the limit fell and latency did not fall with it, the requests do not wait for
each other: the downstream itself became slower, and its latency is the new average. Third, an average that was learned
while the limit held requests back is doubted: it sinks a little with every window, and the limit with it, until latency
either follows down or shows once more that it does not. Each time it does not, the doubt is halved.
"""

from __future__ import annotations

import math
from typing import Final

TOLERANCE: Final = 1.2
WINDOW_S: Final = 0.1
SAMPLES_MIN: Final = 10
LEAST: Final = 8
START_SHARE: Final = 6
"""The limit starts at a sixth of the maximum and doubles while latency allows."""
SLACK_S: Final = 0.005
"""A latency above the average by less than this is noise, such as a busy loop, and no reason to refuse anybody."""
_GRADIENT_LEAST: Final = 0.5
_LONG_UP: Final = 0.05
_LONG_DOWN: Final = 0.2
# The fall after which latency must have moved, and how far below proportion that may stay.
_FALL: Final = 0.7
_STIFF: Final = 0.9
_DOUBT_MOST: Final = 0.01
_DOUBT_LEAST: Final = 0.0005
_START_GROWTH: Final = 2.0
_AGAIN_GROWTH: Final = 1.5


class RouteLatency:
    """One route's averages."""

    __slots__ = ("count", "least_s", "long_s", "short_s", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.least_s = math.inf
        self.long_s = 0.0
        self.short_s = 0.0

    def gradient(self) -> float:
        """End the window: return long over short, 1 at most, 0.5 at least."""
        self.short_s = self.total_s / self.count
        if not self.long_s:
            # The quickest of the first window: the others may have waited behind each other in a flood.
            self.long_s = self.least_s
        allowed_s = max(TOLERANCE * self.long_s, self.long_s + SLACK_S)
        return min(1.0, max(_GRADIENT_LEAST, allowed_s / self.short_s if self.short_s else 1.0))

    def follow(self, doubt: float) -> None:
        """Move the long average: always downwards, upwards only without doubt, that is while nobody is held back."""
        change = self.short_s - self.long_s
        if change < 0:
            self.long_s += _LONG_DOWN * change
        elif not doubt:
            self.long_s += _LONG_UP * change
        self.long_s -= doubt * self.long_s

    def accept(self) -> None:
        """Make the present latency the average."""
        self.long_s = self.short_s


class FixedLimit:
    """A fixed number."""

    __slots__ = ("value",)

    def __init__(self, most: int) -> None:
        self.value = most

    def sample(self, latency: RouteLatency, latency_s: float, started_at: float) -> None:
        """Ignore the sample."""

    def adjust(self, now: float, *, running: int, waiting: int) -> None:
        """Keep the limit."""

    def next_window(self, now: float) -> None:
        """Do nothing: no samples are kept."""


class AdaptiveLimit:
    """Between 8 and `most`, by the gradient of latency."""

    __slots__ = ("_began", "_doubt", "_fell_from", "_growth", "_limit", "_most", "_samples", "_touched", "value")

    def __init__(self, most: int, now: float) -> None:
        """Start below `most`, so that a flood at the start does not set the average."""
        self._most = most
        self._limit = float(min(most, max(LEAST, most // START_SHARE)))
        self.value = int(self._limit)
        self._began = now
        self._samples = 0
        self._touched: set[RouteLatency] = set()
        # How fast it grows until latency first says no; none after that.
        self._growth = _START_GROWTH
        self._doubt = _DOUBT_MOST
        # Where the present fall began: the limit, and latency then.
        self._fell_from: tuple[float, float] | None = None

    def sample(self, latency: RouteLatency, latency_s: float, started_at: float) -> None:
        """Take one answered request, unless it started before the window: then it ran under another limit."""
        if started_at >= self._began:
            latency.count += 1
            latency.total_s += latency_s
            if latency_s < latency.least_s:
                latency.least_s = latency_s
            self._samples += 1
            self._touched.add(latency)

    def adjust(self, now: float, *, running: int, waiting: int) -> None:
        """End the window if it is long enough and has enough samples, and adjust the limit."""
        if self._samples < SAMPLES_MIN or now - self._began < max(WINDOW_S, 2 * self._short_s()):
            return
        felt = waiting > 0 or running >= self.value
        gradient = sum(route.count * route.gradient() for route in self._touched) / self._samples
        short_s = self._short_s()
        if gradient < 1.0:
            self._fall(gradient, short_s, felt=felt)
        elif felt or running * 2 > self.value:
            self._grow()
        if not felt:
            self._doubt = _DOUBT_MOST
        for route in self._touched:
            route.follow(self._doubt if felt else 0.0)
        self.next_window(now)

    def _short_s(self) -> float:
        total_s = sum(route.total_s for route in self._touched)
        return total_s / self._samples if self._samples else 0.0

    def _fall(self, gradient: float, short_s: float, *, felt: bool) -> None:
        self._growth = 0.0
        limit_then, short_then_s = self._fell_from or (self._limit, short_s)
        if self._limit <= limit_then * _FALL:
            if short_s >= short_then_s * _STIFF:
                self._accept(limit_then)
                return
            limit_then, short_then_s = self._limit, short_s
        self._fell_from = limit_then, short_then_s
        if felt:
            self._move(gradient * self._limit + self._step())

    def _accept(self, limit_then: float) -> None:
        """Take back a fall of the limit that did not lower latency: the present latency becomes the average."""
        for route in self._touched:
            route.accept()
        self._fell_from = None
        self._growth = _AGAIN_GROWTH
        self._doubt = max(_DOUBT_LEAST, self._doubt / 2)
        self._move(limit_then)

    def _grow(self) -> None:
        self._fell_from = None
        self._move(max(self._limit * self._growth, self._limit + self._step()))

    def _step(self) -> float:
        """Return how far the limit is raised at once: relatively less, the higher it is."""
        return math.sqrt(self._limit)

    def _move(self, limit: float) -> None:
        self._limit = min(float(self._most), max(float(LEAST), limit))
        self.value = int(self._limit)

    def next_window(self, now: float) -> None:
        """Start a new window and forget the samples."""
        for route in self._touched:
            route.count, route.total_s = 0, 0.0
        self._touched.clear()
        self._samples = 0
        self._began = now
