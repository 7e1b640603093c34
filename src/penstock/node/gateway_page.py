"""What the gateway adds to the operator's page: its routes with rates, statuses and delays, and their upstreams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.admin.concern import Concern, PagePart
from penstock.admin.readings import PerSecond, Quantiles
from penstock.kernel.breaker import BreakerState
from penstock.kernel.metrics import Counter, Histogram, Watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernel.metrics import MetricFamily, Metrics
    from penstock.services.omnigate.proxy.routes import Proxy
    from penstock.services.omnigate.service import OmnigateService

# Routes that have lines of their own in the history; all are in the table.
_LINES_MAX: Final = 32
_STATUS_CLASSES: Final = ("2", "3", "4", "5")


class GatewayPage:
    """Reads the gateway's metrics once a second."""

    def __init__(self, service: OmnigateService, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics
        self._rates = PerSecond()
        self._delays: dict[str, Quantiles] = {}
        self._now: dict[str, dict[str, float]] = {}

    def part(self) -> PagePart:
        """Describe what is added to the page."""
        return PagePart(readings=self.read, facts=self.facts, concerns=self.concerns)

    def read(self, now: float) -> dict[str, float]:
        """Return the figures of this second: in all, and of the first routes each."""
        families = {family.name: family for family in self._metrics.families()}
        counts = _by_route(families.get("http_requests_total"))
        rates = self._rates.rates(counts, now)
        self._now = {}
        for name, rate in rates.items():
            route, _, status = name.partition(" ")
            self._now.setdefault(route, {})[status] = rate
        for route, histogram in _latencies(families.get("request_latency_seconds")).items():
            p50, p99 = self._delays.setdefault(route, Quantiles()).since(histogram, 0.5, 0.99)
            if p99 is not None and p50 is not None:
                self._now.setdefault(route, {}).update(p50=p50, p99=p99)
        return self._lines()

    def _lines(self) -> dict[str, float]:
        lines = {"gateway": sum(self._rate(route) for route in self._now)}
        for status in _STATUS_CLASSES:
            lines[f"gateway.{status}xx"] = sum(each.get(status, 0.0) for each in self._now.values())
        for proxy in self._service.proxies.proxies[:_LINES_MAX]:
            route = _path(proxy)
            lines[f"route.rate:{proxy.route.name}"] = self._rate(route)
            if "p99" in self._now.get(route, {}):
                lines[f"route.p99:{proxy.route.name}"] = self._now[route]["p99"]
        return lines

    def _rate(self, route: str) -> float:
        return sum(self._now.get(route, {}).get(status, 0.0) for status in _STATUS_CLASSES)

    def facts(self) -> dict[str, object]:
        """Return every route that is configured, and those of the gateway itself that are in use."""
        proxied = [self._proxied(proxy) for proxy in self._service.proxies.proxies]
        known = {_path(proxy) for proxy in self._service.proxies.proxies}
        own = [self._row(route, "this node") for route in sorted(self._now) if route not in known and self._rate(route)]
        return {"routes": [*proxied, *own]}

    def _row(self, route: str, kind: str) -> dict[str, object]:
        values = self._now.get(route, {})
        return {
            "route": route,
            "kind": kind,
            "rate": round(self._rate(route), 2),
            **{f"s{status}": round(values.get(status, 0.0), 2) for status in _STATUS_CLASSES},
            "p50": values.get("p50"),
            "p99": values.get("p99"),
        }

    def _proxied(self, proxy: Proxy) -> dict[str, object]:
        upstreams = [
            {"url": url, "state": upstream.lane.breaker.state.value, "connections": upstream.pool.connections}
            for url, upstream in zip(proxy.route.upstreams, proxy.upstreams.all, strict=True)
        ]
        row = {**self._row(_path(proxy), "proxied"), "route": proxy.route.name}
        return {**row, "open": not proxy.route.require, "upstreams": upstreams}

    def concerns(self) -> Sequence[Concern]:
        """Tell of upstreams that are left alone because they failed."""
        open_ones = [
            f"{proxy.route.name} ({url})"
            for proxy in self._service.proxies.proxies
            for url, upstream in zip(proxy.route.upstreams, proxy.upstreams.all, strict=True)
            if upstream.lane.breaker.state is BreakerState.OPEN
        ]
        if not open_ones:
            return []
        words = "a dead upstream" if len(open_ones) == 1 else f"{len(open_ones)} dead upstreams"
        return [Concern("bad", words, f"{open_ones[0]} fails and is left alone for now", "gateway")]


def _path(proxy: Proxy) -> str:
    return proxy.route.name.rstrip("/") + "/{rest*}"


def _by_route(family: MetricFamily | None) -> dict[str, float]:
    """Add the answers up by route and the first digit of their status."""
    counts: dict[str, float] = {}
    series = () if family is None else family.series.items()
    for labels, counter in series:
        said = dict(labels)
        name = f"{said.get('route', '')} {said.get('status', '')[:1]}"
        counts[name] = counts.get(name, 0.0) + (counter.value if isinstance(counter, Counter | Watched) else 0)
    return counts


def _latencies(family: MetricFamily | None) -> dict[str, list[Histogram]]:
    found: dict[str, list[Histogram]] = {}
    series = () if family is None else family.series.items()
    for labels, histogram in series:
        if isinstance(histogram, Histogram):
            found.setdefault(dict(labels).get("route", ""), []).append(histogram)
    return found
