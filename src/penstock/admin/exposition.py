"""The metrics in Prometheus' text format; values are read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.kernel.clock import SYSTEM, Clock
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.metrics import (
    Counter,
    Gauge,
    Histogram,
    Instrument,
    MetricFamily,
    Metrics,
    Summary,
    Watched,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

_SHARE: Final = 0.1
_SPARE_S: Final = 0.3
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """A collector over the metrics of every service; each series gets its service as a label."""

    def __init__(self, sources: Callable[[], Iterable[Metrics]], clock: Clock = SYSTEM) -> None:
        """Call `sources` at each scrape, because services come and go."""
        self._sources = sources
        self._registry: CollectorRegistry | None = None
        self._clock = clock
        # Seconds that may be spent on making pages; what the last one took.
        self._spare = TokenBucket("metrics_pages", rate=_SHARE, depth=_SPARE_S, now=clock.monotonic())
        self._cost_s = 0.0
        self._last = b""

    def page(self) -> bytes:
        """Return the page, made anew unless it was asked for too often: then the last one.

        Making it takes milliseconds, in which nobody else is served, and on loopback anybody may ask for it. So no more
        than a tenth of the time is spent on it.
        """
        now = self._clock.monotonic()
        if not self._last or self._spare.try_take(now, self._cost_s):
            self._last = self.render()
            self._cost_s = min(self._clock.monotonic() - now, _SPARE_S)
        return self._last

    def render(self) -> bytes:
        """Return the whole page. The library is loaded at the first scrape: a start need not wait for it."""
        from prometheus_client.exposition import generate_latest  # noqa: PLC0415

        if self._registry is None:
            self._registry = self._make_registry()
        return generate_latest(self._registry)

    def _make_registry(self) -> CollectorRegistry:
        from prometheus_client.process_collector import ProcessCollector  # noqa: PLC0415
        from prometheus_client.registry import CollectorRegistry  # noqa: PLC0415

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry

    def collect(self) -> Iterator[Metric]:
        """Join families of the same name over all services."""
        joined: dict[str, Metric] = {}
        for metrics in self._sources():
            for family in metrics.families():
                _add(joined, family, metrics.service)
        yield from joined.values()

    def describe(self) -> list[Metric]:
        """Describe nothing beforehand: families are known only at scrape time."""
        return []


def _add(joined: dict[str, Metric], family: MetricFamily, service: str) -> None:
    metric = joined.get(family.name)
    if metric is None:
        name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
        from prometheus_client.core import Metric  # noqa: PLC0415

        metric = joined[family.name] = Metric(name, family.help or family.name, family.kind)
    # A family that labels its downstream by `service` keeps that meaning; whose series it is goes under `owner`.
    own_label = "owner" if "service" in family.label_names else "service"
    for labels, instrument in family.series.items():
        _add_samples(metric, family.name, {**dict(labels), own_label: service}, instrument)


def _add_samples(metric: Metric, name: str, labels: dict[str, str], instrument: Instrument) -> None:
    if isinstance(instrument, Counter | Watched):
        metric.add_sample(name, labels, instrument.value)
    elif isinstance(instrument, Gauge):
        metric.add_sample(name, labels, instrument.current())
    elif isinstance(instrument, Histogram):
        _add_histogram(metric, name, labels, instrument)
    elif isinstance(instrument, Summary):
        metric.add_sample(f"{name}_count", labels, instrument.count)
        metric.add_sample(f"{name}_sum", labels, instrument.total)


def _add_histogram(metric: Metric, name: str, labels: dict[str, str], histogram: Histogram) -> None:
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        shown = "+Inf" if bound == float("inf") else repr(bound)
        metric.add_sample(f"{name}_bucket", {**labels, "le": shown}, below)
    metric.add_sample(f"{name}_count", labels, below)
    metric.add_sample(f"{name}_sum", labels, histogram.total)
