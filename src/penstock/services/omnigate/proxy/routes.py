"""Configured routes: a streaming reverse proxy in front of any HTTP service."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from penstock.kernel.backoff import RetryBudget, Rng
from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy, DownstreamUnavailable, Timeout
from penstock.kernel.memo import Memo
from penstock.kernel.resource import Resource
from penstock.kernel.scope import Scope
from penstock.net.calls.call import ClientOptions
from penstock.net.calls.hedge import HedgePolicy
from penstock.net.calls.pool import ClientShared, Dial
from penstock.net.calls.retry import HttpRetries
from penstock.net.server.route import Route
from penstock.services.omnigate.gate.ticket import tenant_of
from penstock.services.omnigate.own.downstream import BREAKER, RESERVE_S, DownstreamCounts, tell_breaker
from penstock.services.omnigate.proxy.call import ProxyCall
from penstock.services.omnigate.proxy.headers import (
    forwarded,
    named_via,
    request_fields,
    target_path,
)
from penstock.services.omnigate.proxy.relay import DateHeader
from penstock.services.omnigate.proxy.shares import TenantShares
from penstock.services.omnigate.proxy.upstream import Upstream, Upstreams

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteShare
    from penstock.net.calls.downstream import BreakerReport
    from penstock.net.message import HandlerResult, Request
    from penstock.services.omnigate.proxy.config import ProxyRoute
    from penstock.wire.http1.head import HttpHead

_HEADS_KEPT: Final = 1024
_CLOSE_S: Final = 1.0


class CallerHeaders(Protocol):
    """What an upstream is told about the caller, as `forward` says."""

    def lines(self, route: ProxyRoute, request: Request) -> bytes:
        """Return whole field lines, or nothing."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyOptions:
    """What all configured routes share."""

    # Connections, and so calls, to one upstream at once; more wait in line.
    calls_max: int = 128
    waiters_max: int = 512
    # A client that names no deadline has this one.
    default_deadline_s: float = 2.0
    connect_timeout_s: float = 2.0
    # For each piece of a body, in either direction.
    read_timeout_s: float = 5.0
    write_timeout_s: float = 5.0
    idle_s: float = 30.0
    tasks_max: int = 2048
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyDeps:
    """What the proxy is told by its neighbours, all of it optional."""

    # True while the gateway refuses or queues: no hedges then.
    shedding: Callable[[], bool] = lambda: False
    teller: CallerHeaders | None = None
    # What bodies that are received first are taken from.
    budget: ByteShare | None = None
    rng: Rng = field(default_factory=random.SystemRandom)
    dial: Dial | None = None


class Proxy:
    """One configured route as it runs."""

    def __init__(self, route: ProxyRoute, shared: Proxies) -> None:
        """Make the upstreams' pools and breakers; dial nothing."""
        metrics, client = shared.inventory.metrics, shared.client_of(route)
        self.timeouts = client.timeouts
        self.counts = DownstreamCounts(shared.inventory, route.name)
        self.route = route
        lanes = [Upstream(url, client, self.counts.latency) for url in route.upstreams]
        self.upstreams = Upstreams(route.name, lanes)
        for url, lane in zip(route.upstreams, lanes, strict=True):
            tell_breaker(metrics, lane.lane.breaker, route.name, url)
        self.shares = TenantShares(shared.options.calls_max * len(lanes))
        self.scope = shared.scope
        self.monotonic = shared.inventory.clock.monotonic
        self.date = shared.date
        self.budget = RetryBudget()
        self.retries = HttpRetries(client.options, metrics, shared.around.rng)
        self._hedges = HedgePolicy(shared.around.shedding)
        self.rules = self.retries.rules(self.budget, self._hedges)
        self._shared = shared
        # What a request has that names no deadline; an upstream that takes longer is late.
        self.patience_s = _less_reserve(min(shared.options.default_deadline_s, route.timeout_s))
        self._strip = len(route.prefix) if route.strip_prefix else 0
        # What became of a head; clients send the same one over and over. It is shared between them: nothing of a
        # single client may be in here.
        known: Memo[HttpHead, tuple[bytes, bytes]] = Memo(_HEADS_KEPT)
        self._known = shared.remember(route.name, known)

    def handle(self, request: Request) -> HandlerResult:
        """Ask an upstream; the answer is a promise unless it failed at once."""
        now, head, teller = self.monotonic(), request.head, self._shared.around.teller
        known = self._known.get(head) or self._prepare(head)
        fields = known[1] + forwarded(request.peer, head.headers.get(b"host"))
        if teller is not None:
            fields += teller.lines(self.route, request)
        # The client's deadline or the default, never above the route's, less what the way back takes.
        request.timeout_s = limit_s = _less_reserve(request.timeout_s)
        if now >= request.received_at + limit_s:
            raise Timeout(ProxyCall.op, budget_s=limit_s)
        key = tenant_of(request)
        if not self.shares.may_ask(key):
            raise Busy("Too many of this caller's streams wait for it to read on.", limit="proxy.stalled")
        self.budget.record_call(now)
        call = ProxyCall(self, request, key, known[0], fields)
        call.start(now)
        result: HandlerResult = call.result if call.done else call
        return result

    def _prepare(self, head: HttpHead) -> tuple[bytes, bytes]:
        via = self._shared.via
        if named_via(head, via):
            raise DownstreamUnavailable("The route leads back to this gateway.", status=502)
        fields = request_fields(head, via, self.route.allow_headers)
        return self._known.put(head, (target_path(head, self._strip), fields))

    def choose(self, now: float, shunned: Upstream | None) -> tuple[Upstream, BreakerReport]:
        """Take the next upstream that may be asked, rather another than the one that just failed."""
        try:
            return self.upstreams.choose(now, other_than=shunned)
        except DownstreamUnavailable:
            self.counts.refused()
            raise

    def forget_breakers(self) -> None:
        """Show its breakers no more: the route is served no longer."""
        for url in self.route.upstreams:
            self._shared.inventory.metrics.forget(BREAKER, service=self.route.name, upstream=url)

    # --- bodies that are received before an upstream is asked

    def spool(self, call: ProxyCall, count: int) -> None:
        """Take bytes for a body from what the node may hold, or raise `Busy`."""
        budget = self._shared.around.budget
        if budget is not None and not budget.try_take(count):
            raise Busy("The node holds as many bytes as it may.", limit="node_bytes")
        call.spooled_bytes += count

    def unspool(self, call: ProxyCall) -> None:
        """Give a body's bytes back."""
        budget, call.spooled_bytes, count = self._shared.around.budget, 0, call.spooled_bytes
        if budget is not None:
            budget.give(count)

    @property
    def healthy(self) -> bool:
        """Tell whether at least one upstream's breaker is closed."""
        return any(upstream.healthy for upstream in self.upstreams.all)

    # --- hedging

    def hedge_after_s(self, method: str) -> float | None:
        """Return when a second request would go out, or None where there is none: most routes, and all but GET."""
        return self._hedges.begin() if self.route.hedge and method == "GET" else None

    def observe(self, elapsed_s: float) -> None:
        """Learn how long answers take."""
        if self.route.hedge:
            self._hedges.observe(elapsed_s)


def upstream_name(route: str, url: str) -> str:
    """Name an upstream of a route where both have to be known."""
    return f"{route} ({url})"


def _less_reserve(limit_s: float) -> float:
    return max(limit_s - RESERVE_S, limit_s / 2)


class Proxies(Resource):
    """All configured routes, and what they share. Close it when the listener is closed."""

    def __init__(
        self,
        inventory: Inventory,
        routes: Iterable[ProxyRoute],
        options: ProxyOptions | None = None,
        around: ProxyDeps | None = None,
    ) -> None:
        """Declare limits and timeouts; nothing is dialled before the first request."""
        self.inventory = inventory
        self.options = options or ProxyOptions()
        self.around = around or ProxyDeps()
        self.scope = Scope("proxy", self.options.tasks_max, inventory.metrics)
        self.date = DateHeader(inventory.clock.wall)
        self._heads: dict[str, Memo[HttpHead, tuple[bytes, bytes]]] = {}
        self._listed: set[str] = set()
        # Tells a request that comes round again from one that came through another gateway.
        self.via = b"1.1 penstock-" + os.urandom(4).hex().encode("ascii")
        self.proxies = tuple(Proxy(route, self) for route in routes)
        # Served no more; their requests under way finish on them, and their idle connections close by themselves.
        self._retired: list[Proxy] = []
        self._declare()
        self.opened("proxies")

    def serve(self, routes: Iterable[ProxyRoute]) -> dict[Route, ProxyRoute]:
        """Serve these from now on; what has not changed keeps its connections and its breakers."""
        known = {proxy.route: proxy for proxy in self.proxies}
        wanted = tuple(routes)
        self._retired = [proxy for proxy in self._retired if proxy.upstreams.live]
        gone = [proxy for route, proxy in known.items() if route not in wanted]
        for proxy in gone:
            proxy.forget_breakers()
        self._retired += gone
        self.proxies = tuple(known.get(route) or Proxy(route, self) for route in wanted)
        return self.routes()

    def routes(self) -> dict[Route, ProxyRoute]:
        """Return what the listener serves, each with the configured route it belongs to."""
        return {route: proxy.route for proxy in self.proxies for route in self._routes_of(proxy)}

    def _routes_of(self, proxy: Proxy) -> Iterable[Route]:
        path = proxy.route.name.rstrip("/") + "/{rest*}"
        for method in proxy.route.methods:
            yield Route(
                method=method,
                path=path,
                handler=proxy.handle,
                stream_body=method not in {"GET", "HEAD", "OPTIONS"},
                summary=f"Passed on to the upstreams of {proxy.route.name}.",
                open=not proxy.route.require,
                deadline_s=min(self.options.default_deadline_s, proxy.route.timeout_s),
                deadline_max_s=proxy.route.timeout_s,
                errors=("downstream_unavailable", "timeout", "over_limit", "busy"),
            )

    def healthy(self) -> Mapping[str, bool]:
        """Tell by route name whether at least one upstream is well."""
        return {proxy.route.name: proxy.healthy for proxy in self.proxies}

    def probes(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Name for each upstream a way to find out whether it can be reached."""
        return {
            upstream_name(proxy.route.name, url): upstream.reach
            for proxy in self.proxies
            for url, upstream in zip(proxy.route.upstreams, proxy.upstreams.all, strict=True)
        }

    def upstreams(self) -> dict[str, Sequence[Upstream]]:
        """Return the upstreams of each route by its name, in its order."""
        return {proxy.route.name: proxy.upstreams.all for proxy in self.proxies}

    def remember(self, name: str, memo: Memo[HttpHead, tuple[bytes, bytes]]) -> Memo[HttpHead, tuple[bytes, bytes]]:
        """List what a route remembers of heads; one that comes again takes the place of the one before."""
        self._heads[name] = memo
        if name not in self._listed:
            self._listed.add(name)
            policy = "full: the oldest are forgotten"
            live: Callable[[], dict[str, object]] = lambda: {"in_use": len(self._heads[name])}  # noqa: E731
            self.inventory.limit(f"proxy.heads[{name}]", memo.capacity, policy, live)
        return memo

    def client_of(self, route: ProxyRoute) -> ClientShared:
        """Make what the connections to a route's upstreams share."""
        options = self.options
        client = ClientOptions(
            service=route.name,
            op="proxy",
            connections_max=options.calls_max,
            waiters_max=options.waiters_max,
            idle_s=options.idle_s,
            connect_timeout_s=options.connect_timeout_s,
            write_timeout_s=options.write_timeout_s,
            read_timeout_s=options.read_timeout_s,
            timeout_s=route.timeout_s,
            breaker=options.breaker,
        )
        return ClientShared(client, self.inventory.metrics, self.around.dial)

    def retime(self, read_s: float, write_s: float) -> None:
        """Follow the settings: how long each piece of a body may take, on connections that are open and later ones."""
        self.options = replace(self.options, read_timeout_s=read_s, write_timeout_s=write_s)
        for proxy in (*self.proxies, *self._retired):
            proxy.timeouts.read_s, proxy.timeouts.write_s = read_s, write_s

    def _declare(self) -> None:
        inventory, options = self.inventory, self.options
        inventory.limit("proxy.connections", options.calls_max, "an upstream; none left: wait in line")
        inventory.limit("proxy.waiters", options.waiters_max, "an upstream; full: Busy")
        each = TenantShares(options.calls_max)
        inventory.limit("proxy.uploads", each.uploads_max, "an upstream, on their way in; more are received first")
        inventory.limit("proxy.uploads_each", each.uploads_max_each, "a tenant's; more are received first")
        inventory.limit("proxy.stalled", each.stalled_max, "a tenant's streams that wait for it to read; full: Busy")
        inventory.limit("proxy.tasks", options.tasks_max, "full: Busy", lambda: {"in_use": len(self.scope)})
        inventory.timeout("proxy.connect", options.connect_timeout_s, "Timeout, 504")
        inventory.timeout("proxy.read", options.read_timeout_s, "a piece of an answer; the client's answer is cut")
        inventory.timeout("proxy.write", options.write_timeout_s, "a piece of a request; Timeout, 504")

    async def _release(self) -> None:
        """Cut what is left and wait a moment for the sockets to be gone."""
        await self.scope.close()
        pools = [upstream.pool for proxy in (*self.proxies, *self._retired) for upstream in proxy.upstreams.all]
        for pool in pools:
            pool.cut()
        with contextlib.suppress(Timeout):
            async with timeout("close", _CLOSE_S):
                for pool in pools:
                    await pool.emptied()
