"""The upstreams of one route: each with its connections and its breaker; calls go round among those that are well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.kernel.breaker import BreakerState
from penstock.kernel.errors import DownstreamUnavailable
from penstock.net.calls.downstream import BreakerReport, OriginState
from penstock.net.calls.origin import parse_url

if TYPE_CHECKING:
    from penstock.kernel.metrics import Histogram
    from penstock.net.calls.pool import ClientShared


class Upstream:
    """One base URL."""

    __slots__ = ("base", "host_line", "lane", "pool")

    def __init__(self, url: str, shared: ClientShared, latency: Histogram) -> None:
        origin, path = parse_url(url)
        # What goes before the path that was asked for; the base of `http://host` is empty.
        self.base = path.rstrip("/").encode("ascii")
        self.host_line = b" HTTP/1.1\r\nHost: %b\r\n" % origin.authority
        self.lane = OriginState(origin, shared, latency)
        self.pool = self.lane.pool

    async def reach(self) -> None:
        """Dial it; the connection is not kept."""
        self.pool.release(await self.pool.acquire())

    @property
    def healthy(self) -> bool:
        """Tell whether its breaker is closed."""
        return self.lane.breaker.state is BreakerState.CLOSED


class Upstreams:
    """Choose by turns. One whose breaker is open is passed over; when all are, the answer is 503 at once."""

    __slots__ = ("_service", "_turn", "all")

    def __init__(self, service: str, upstreams: Sequence[Upstream]) -> None:
        self.all = tuple(upstreams)
        self._service = service
        self._turn = 0

    @property
    def live(self) -> bool:
        """Tell whether any connection is still open."""
        return any(upstream.pool.live for upstream in self.all)

    def choose(self, now: float, *, other_than: Upstream | None = None) -> tuple[Upstream, BreakerReport]:
        """Take the next one that may be asked, rather another than the one that just failed."""
        chosen = self._next(now, other_than) or (self._next(now, None) if other_than is not None else None)
        if chosen is None:
            wait_s = min(upstream.lane.breaker.retry_after_s(now) for upstream in self.all)
            detail = f"{self._service} failed too often and is left alone."
            raise DownstreamUnavailable(detail, retry_after=max(1, math.ceil(wait_s)))
        return chosen

    def _next(self, now: float, shunned: Upstream | None) -> tuple[Upstream, BreakerReport] | None:
        for _ in self.all:
            upstream = self.all[self._turn % len(self.all)]
            self._turn += 1
            if upstream is not shunned and upstream.lane.breaker.allow(now):
                return upstream, BreakerReport(upstream.lane.breaker, upstream.lane.latency, now)
        return None
