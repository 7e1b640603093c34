"""The metrics in Prometheus' text format; values are read when somebody scrapes.

A node has some five thousand lines of metrics, and nobody else is served while they are written. So the part of a line
before its value is written once, and a series whose values have not changed since the last page gives its lines of
then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from penstock.admin.process_metrics import process_page
from penstock.kernel.clock import SYSTEM, Clock
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.metrics import Counter, Gauge, Histogram, Labels, Summary, Watched

if TYPE_CHECKING:
    from penstock.kernel.metrics import Instrument, MetricFamily, Metrics

_SHARE: Final = 0.1
_SPARE_S: Final = 0.3
PAGE_S: Final = 1.0
"""How old a page may be that somebody without the operator token gets."""
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_SERIES = tuple[str, str, Labels]


class _SeriesText:
    """The lines of one series: what stands before each value, and the whole as it was written last."""

    __slots__ = ("_before", "_seen", "instrument", "text")

    def __init__(self, family: MetricFamily, labels: Labels, service: str, instrument: Instrument) -> None:
        self.instrument = instrument
        # A family that labels its downstream by `service` keeps that meaning; whose series it is goes under `owner`.
        own_label = "owner" if "service" in family.label_names else "service"
        self._before = _before_values(family.name, {**dict(labels), own_label: service}, instrument)
        self._seen: tuple[float, ...] | None = None
        self.text = ""

    def update(self, values: tuple[float, ...]) -> None:
        """Write the lines again if a value has changed."""
        if values != self._seen:
            self._seen = values
            self.text = "".join([f"{before}{_number(v)}\n" for before, v in zip(self._before, values, strict=True)])


class Exposition:
    """The page over the metrics of every service; each series gets its service as a label."""

    def __init__(self, sources: Callable[[], Iterable[Metrics]], clock: Clock = SYSTEM) -> None:
        """Call `sources` at each scrape, because services come and go."""
        self._sources = sources
        self._clock = clock
        # Seconds that may be spent on making pages; what the last one took.
        self._spare = TokenBucket("metrics_pages", rate=_SHARE, depth=_SPARE_S, now=clock.monotonic())
        self._cost_s = 0.0
        self._last = b""
        self._made_at = -math.inf
        # One for each series of the last page.
        self._series: dict[_SERIES, _SeriesText] = {}

    def page(self) -> bytes:
        """Return the page, made anew unless it was asked for too often: then the last one.

        Nobody else is served while it is made, so no more than a tenth of the time is spent on it.
        """
        now = self._clock.monotonic()
        if not self._last or self._spare.try_take(now, self._cost_s):
            self._make(now)
        return self._last

    def recent_page(self) -> bytes:
        """Return a page of the last second, which all who ask within it share: anybody may ask for this one."""
        now = self._clock.monotonic()
        if now - self._made_at >= PAGE_S:
            self._make(now)
        return self._last

    def _make(self, now: float) -> None:
        self._last = self.render()
        self._made_at = now
        self._cost_s = min(self._clock.monotonic() - now, _SPARE_S)

    def render(self) -> bytes:
        """Write the whole page; families of the same name are joined over all services."""
        before, self._series = self._series, {}
        joined: dict[str, list[str]] = {}
        for metrics in self._sources():
            for family in metrics.families():
                lines = joined.get(family.name)
                if lines is None:
                    lines = joined[family.name] = [_about(family)]
                self._add(lines, family, metrics.service, before)
        return "".join([line for lines in joined.values() for line in lines] + [process_page()]).encode()

    def _add(self, lines: list[str], family: MetricFamily, service: str, before: dict[_SERIES, _SeriesText]) -> None:
        """Add the series of one family of one service; a series that is gone is forgotten with the last page."""
        for labels, instrument in family.series.items():
            key = service, family.name, labels
            series = before.get(key)
            # One that was dropped and declared again may have other bounds.
            if series is None or series.instrument is not instrument:
                series = _SeriesText(family, labels, service, instrument)
            self._series[key] = series
            series.update(_values(instrument))
            lines.append(series.text)


def _about(family: MetricFamily) -> str:
    told = (family.help or family.name).translate(_HELP_ESCAPES)
    return f"# HELP {family.name} {told}\n# TYPE {family.name} {family.kind}\n"


def _before_values(name: str, labels: dict[str, str], instrument: Instrument) -> list[str]:
    """Return what stands before each value of `_values`."""
    plain = _pairs(labels)
    if isinstance(instrument, Histogram):
        bounds = [*map(repr, instrument.bounds), "+Inf"]
        buckets = [f'{name}_bucket{{{plain},le="{bound}"}} ' for bound in bounds]
        return [*buckets, f"{name}_count{{{plain}}} ", f"{name}_sum{{{plain}}} "]
    if isinstance(instrument, Summary):
        return [f"{name}_count{{{plain}}} ", f"{name}_sum{{{plain}}} "]
    return [f"{name}{{{plain}}} "]


def _pairs(labels: dict[str, str]) -> str:
    return ",".join([f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(labels.items())])


def _values(instrument: Instrument) -> tuple[float, ...]:
    if isinstance(instrument, Counter | Watched):
        return (instrument.value,)
    if isinstance(instrument, Gauge):
        return (instrument.current(),)
    if isinstance(instrument, Histogram):
        below, counts = 0, list[float]()
        for count in instrument.counts:
            below += count
            counts.append(below)
        return (*counts, below, instrument.total)
    return (instrument.count, instrument.total)


def _number(value: float) -> str:
    """Write a number as Prometheus reads it."""
    text = repr(float(value))
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
