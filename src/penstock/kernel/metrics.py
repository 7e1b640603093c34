"""Counters that cost an integer addition: plain values on the hot path, read only when somebody scrapes.

The kernel keeps the numbers and their declarations; turning them into an exposition format is done outside
(`penstock.admin.exposition`), so that the kernel needs nothing but the standard library.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

Kind = Literal["counter", "gauge", "histogram", "summary"]
Labels = tuple[tuple[str, str], ...]

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class Counter:
    """A number that only grows: `counter.value += 1` on the hot path."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """Add to the count."""
        self.value += amount


class Watched:
    """A counter whose truth lies with its owners: the sum of what they report, read at scrape time."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: list[Callable[[], int]] = []

    def append(self, read: Callable[[], int]) -> None:
        """Add an owner's count to the sum."""
        self._readers.append(read)

    @property
    def value(self) -> int:
        """Return the sum now."""
        return sum(read() for read in self._readers)


class Gauge:
    """A number that goes both ways, or is read from its owner at scrape time."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        """Take the reader, if the owner of the truth is elsewhere."""
        self._read = read
        self.value: float = 0

    def set(self, value: float) -> None:
        """Replace the value."""
        self.value = value

    def current(self) -> float:
        """Return what a scrape should show now."""
        return self.value if self._read is None else self._read()


class Histogram:
    """Counts by upper bound; the last place counts what is above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        """Make one place a bound and one for the rest."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, count: int) -> None:
        """Count a value that several have in common."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    @property
    def count(self) -> int:
        """Return how many values were counted."""
        return sum(self.counts)


class Summary:
    """How many, how much in all, and the largest: enough where quantiles would cost more than they tell."""

    __slots__ = ("count", "peak", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.peak = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.count += 1
        self.total += value
        self.peak = max(self.peak, value)


Instrument = Counter | Watched | Gauge | Histogram | Summary
_I = TypeVar("_I", Counter, Watched, Gauge, Histogram, Summary)


@dataclass(slots=True)
class MetricFamily:
    """Every series that shares a name; what a declaration and a scrape have in common."""

    name: str
    kind: Kind
    help: str
    label_names: tuple[str, ...]
    series: dict[Labels, Instrument] = field(default_factory=dict)


class Metrics:
    """The declared instruments of one service. Declared twice alike is one; declared otherwise is a bug."""

    def __init__(self, service: str) -> None:
        """Name the service: exposition adds it as a label to every series."""
        self.service = service
        self._families: dict[str, MetricFamily] = {}

    def counter(self, name: str, help_text: str = "", /, **labels: str) -> Counter:
        """Declare a counter, or return the one declared before."""
        return self._declare("counter", Counter, name, help_text, labels)

    def watched(self, name: str, help_text: str = "", /, **labels: str) -> Watched:
        """Declare a counter that its owners keep: `watched(...).append(lambda: owner.count)`."""
        return self._declare("counter", Watched, name, help_text, labels)

    def gauge(self, name: str, help_text: str = "", /, read: Callable[[], float] | None = None, **labels: str) -> Gauge:
        """Declare a gauge; with `read` the value is fetched from its owner at scrape time."""
        gauge = self._declare("gauge", Gauge, name, help_text, labels)
        if read is not None:
            gauge._read = read
        return gauge

    def histogram(
        self, name: str, help_text: str = "", /, buckets: tuple[float, ...] = LATENCY_BUCKETS_S, **labels: str
    ) -> Histogram:
        """Declare a histogram with its upper bounds."""
        return self._declare("histogram", lambda: Histogram(buckets), name, help_text, labels)

    def summary(self, name: str, help_text: str = "", /, **labels: str) -> Summary:
        """Declare a summary."""
        return self._declare("summary", Summary, name, help_text, labels)

    def declare(self, kind: Kind, name: str, help_text: str, *label_names: str) -> None:
        """Declare a family whose series come later, because their labels do; so that it is documented before."""
        self._family(kind, name, help_text, tuple(sorted(label_names)))

    def forget(self, name: str, /, **labels: str) -> None:
        """Drop one series, for owners that come and go; the family stays declared."""
        family = self._families.get(name)
        if family is not None:
            family.series.pop(_key(labels), None)

    def families(self) -> list[MetricFamily]:
        """Return all families by name."""
        return [self._families[name] for name in sorted(self._families)]

    def value(self, name: str, /, **labels: str) -> float:
        """Return the present value of a counter or gauge; for tests and pages, not for hot paths."""
        instrument = self._families[name].series[_key(labels)]
        if isinstance(instrument, Gauge):
            return instrument.current()
        return instrument.count if isinstance(instrument, Histogram | Summary) else instrument.value

    def _declare(self, kind: Kind, make: Callable[[], _I], name: str, help_text: str, labels: Mapping[str, str]) -> _I:
        family = self._family(kind, name, help_text, tuple(sorted(labels)))
        key = _key(labels)
        instrument = family.series.get(key)
        if instrument is None:
            instrument = family.series[key] = make()
        return instrument  # type: ignore[return-value]  # the family's kind was checked above

    def _family(self, kind: Kind, name: str, help_text: str, label_names: tuple[str, ...]) -> MetricFamily:
        family = self._families.get(name)
        if family is None:
            _check_names(name, label_names)
            family = self._families[name] = MetricFamily(name, kind, help_text, label_names)
        elif family.kind != kind or family.label_names != label_names:
            message = f"metric {name} is already declared as {family.kind}{list(family.label_names)}"
            raise ValueError(message)
        family.help = family.help or help_text
        return family


def _check_names(name: str, label_names: Iterable[str]) -> None:
    for word in (name, *label_names):
        if not _NAME.match(word):
            message = f"{word!r} is not a metric or label name"
            raise ValueError(message)


def _key(labels: Mapping[str, str]) -> Labels:
    """Name a series by its labels; an empty one is absent, so that some series of a family may lack it."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))
