"""An hour of figures in RAM: each second for five minutes, each ten seconds for the hour. Pure.

Every series has two rings of fixed length. The place of a value follows from the time alone (`second % length`), so
all series share one clock and a second in which nothing was measured is a gap, not a shift. The coarse ring holds the
mean of its ten seconds, or the largest of them where a mean would hide what an operator looks for (delays, ages).
The number of series is bounded: when there are too many, the one that has been quiet for the longest makes room.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

FINE_S: Final = 300
COARSE_S: Final = 10
COARSE_COUNT: Final = 360
SERIES_MAX: Final = 920
BYTES_MAX: Final = 4 << 20
# A series without a value for so long holds nothing any more.
_FORGET_S: Final = COARSE_S * COARSE_COUNT
_DIGITS: Final = 4
_GAP: Final = math.nan

HistorySpan = Literal["5m", "1h"]
Values = Mapping[str, float]


class Series:
    """The two rings of one figure."""

    __slots__ = ("active_at", "coarse", "fine", "peak", "seen_at", "total", "values")

    def __init__(self, now: int) -> None:
        self.fine = array("f", [_GAP]) * FINE_S
        self.coarse = array("f", [_GAP]) * COARSE_COUNT
        # The ten seconds that are under way: how many values, their sum and the largest.
        self.values = 0
        self.total = 0.0
        self.peak = 0.0
        # The last second with a value, and the last with one other than zero.
        self.seen_at = self.active_at = now

    def begin_coarse(self) -> None:
        """Start the next ten seconds."""
        self.values, self.total, self.peak = 0, 0.0, 0.0

    def put(self, now: int, value: float, *, peaks: bool) -> None:
        """Take the value of one second."""
        self.fine[now % FINE_S] = value
        self.values += 1
        self.total += value
        self.peak = max(self.peak, value)
        self.coarse[now // COARSE_S % COARSE_COUNT] = self.peak if peaks else self.total / self.values
        self.seen_at = now
        if value:
            self.active_at = now


class FigureHistory:
    """All series. `record` is called once a second with everything that was measured."""

    def __init__(self, peaks: Collection[str] = ()) -> None:
        """Keep the largest of ten seconds for series whose name ends with one of `peaks`, the mean for all others."""
        self._peaks = tuple(peaks)
        self._series: dict[str, Series] = {}
        self._now = -1
        # Series that made room for others.
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._series)

    def record(self, now: int, values: Values) -> None:
        """Write one second; the seconds since the last one are gaps."""
        if now <= self._now:
            return
        self._advance(now)
        for name, value in values.items():
            series = self._series.get(name) or self._begin(name, now)
            series.put(now, value, peaks=name.endswith(self._peaks))
        for name in [name for name, series in self._series.items() if now - series.seen_at > _FORGET_S]:
            del self._series[name]

    def _advance(self, now: int) -> None:
        """Clear the places between the last second and this one, and begin a new ten seconds where one begins."""
        first = max(self._now + 1, now - FINE_S + 1)
        fine = [second % FINE_S for second in range(first, now + 1)]
        first_ten = max(self._now // COARSE_S + 1, now // COARSE_S - COARSE_COUNT + 1)
        coarse = [ten % COARSE_COUNT for ten in range(first_ten, now // COARSE_S + 1)]
        for series in self._series.values():
            for place in fine:
                series.fine[place] = _GAP
            for place in coarse:
                series.coarse[place] = _GAP
            if coarse:
                series.begin_coarse()
        self._now = now

    def _begin(self, name: str, now: int) -> Series:
        if len(self._series) >= SERIES_MAX:
            quietest = min(self._series, key=lambda each: self._series[each].active_at)
            del self._series[quietest]
            self.forgotten += 1
        series = self._series[name] = Series(now)
        return series

    def read(
        self, span: HistorySpan, *, prefixes: tuple[str, ...] = ("",), points: int = 0
    ) -> dict[str, list[float | None]]:
        """Return series by name, oldest first; None is a gap. `points` joins neighbours until so many are left."""
        chosen = ((name, series) for name, series in self._series.items() if name.startswith(prefixes))
        return {name: self._line(series, span, points, peaks=name.endswith(self._peaks)) for name, series in chosen}

    def _line(self, series: Series, span: HistorySpan, points: int, *, peaks: bool) -> list[float | None]:
        if span == "5m":
            ring, last = series.fine, self._now % FINE_S
        else:
            ring, last = series.coarse, self._now // COARSE_S % COARSE_COUNT
        line = [*ring[last + 1 :], *ring[: last + 1]]
        each = math.ceil(len(line) / points) if points else 1
        joined = line if each <= 1 else [_join(line[at : at + each], peaks=peaks) for at in range(0, len(line), each)]
        return [None if math.isnan(value) else shortened(value) for value in joined]

    def bytes_in_use(self) -> int:
        """Return about how much RAM the series take."""
        each = 4 * (FINE_S + COARSE_COUNT) + 400
        return len(self._series) * each + sum(map(len, self._series))


def _join(values: Sequence[float], *, peaks: bool) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return _GAP
    return max(known) if peaks else sum(known) / len(known)


def shortened(value: float) -> float:
    """Keep four digits: a picture shows no more, and the answer is half as long."""
    if not value or not math.isfinite(value):
        return 0.0 if not math.isfinite(value) else value
    return round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))


def quantile(bounds: Sequence[float], counts: Iterable[int], part: float) -> float | None:
    """Estimate a quantile from counts by upper bound, evenly spread within each; None where nothing was counted."""
    counted = list(counts)
    wanted = sum(counted) * part
    if not wanted:
        return None
    below = 0.0
    for place, count in enumerate(counted):
        if count and below + count >= wanted:
            low = bounds[place - 1] if place else 0.0
            # What is above all bounds is at least the last of them; nobody measured how much.
            high = bounds[place] if place < len(bounds) else low
            return low + (high - low) * (wanted - below) / count
        below += count
    return bounds[-1]
