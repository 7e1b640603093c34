"""What an operator asks of the gateway's routes: which there are, one more, one less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Malformed, PenstockError
from penstock.net.server.route import Route
from penstock.services.omnigate.own.calling import convert
from penstock.services.omnigate.proxy.live_routes import NewRoute, RemoveRoute
from penstock.services.omnigate.proxy.routes import upstream_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from penstock.net.calls.client import HttpClient
    from penstock.net.message import Request
    from penstock.services.omnigate.proxy.config import ProxyRoute
    from penstock.services.omnigate.proxy.live_routes import LiveRoutes
    from penstock.services.omnigate.proxy.routes import Proxies
    from penstock.services.omnigate.proxy.upstream import Upstream

_PROBE_S: Final = 2.0
_NOT_FOUND: Final = 404
_NEVER: Final = "not reached since the node started"
PATHS: Final = ("/admin/routes", "/v1/node/routes")
"""The page's own path, and the one that a client has at the gateway too."""


class ListRoutes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of the list; `dial=true` tries a connection to every upstream first."""

    dial: bool = False


class UpstreamShown(msgspec.Struct, frozen=True):
    """One upstream of a route, and how the calls to it went.

    `state` is its breaker's: `closed`, `open` (it is left alone because it failed) or `half_open`. `failures` calls
    have failed since the last that came back well, the first of them `failing_s` seconds ago. `problem` is why it
    could not be dialled, now or at the start of the node; empty when it could, or nobody tried.
    """

    url: str
    state: str
    failures: int
    failing_s: float | None
    problem: str


class RouteShown(msgspec.Struct, frozen=True):
    """One route; `source` is `file` for the configuration's, `live` for one that was added."""

    prefix: str
    upstream: tuple[str, ...]
    strip_prefix: bool
    require: tuple[str, ...]
    methods: tuple[str, ...]
    timeout_ms: int
    source: str
    healthy: bool
    upstreams: tuple[UpstreamShown, ...]


class RouteList(msgspec.Struct, frozen=True):
    """Every route that is served."""

    routes: list[RouteShown]


class RouteAdded(msgspec.Struct, frozen=True):
    """The route as it is served now, and what an operator should know about it."""

    route: RouteShown
    warnings: list[str]


class RouteRemoved(msgspec.Struct, frozen=True):
    """Which route is gone."""

    removed: str


class RouteAdmin:
    """The routes of the admin listener that change the gateway's. Who may call them is judged before."""

    def __init__(
        self, routes: LiveRoutes, client: HttpClient, proxies: Proxies, unreached: Callable[[], Collection[str]]
    ) -> None:
        """Change `routes`; ask upstreams by `client`, which is not owned.

        `unreached` names the upstreams that nobody could dial since the start.
        """
        self._routes = routes
        self._client = client
        self._proxies = proxies
        self._unreached = unreached

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [route for path in PATHS for route in self._at(path)]

    def _at(self, path: str) -> list[Route]:
        return [
            Route(
                method="GET",
                path=path,
                handler=self._list,
                query=ListRoutes,
                answer=RouteList,
                summary="The gateway's routes and how their upstreams are.",
            ),
            Route(
                method="POST",
                path=path,
                handler=self._add,
                body=NewRoute,
                answer=RouteAdded,
                summary="Add a route, at once.",
                errors=("conflict", "over_limit"),
            ),
            Route(
                method="DELETE",
                path=path,
                handler=self._remove,
                query=RemoveRoute,
                answer=RouteRemoved,
                summary="Remove a route that was added; `?prefix=` names it.",
                errors=("not_found", "conflict"),
            ),
        ]

    async def _list(self, request: Request) -> RouteList:
        tables = self._routes.tables
        problems = await self._dialled() if convert({**request.query_params()}, ListRoutes).dial else {}
        known = self._proxies.upstreams()
        return RouteList(
            [
                self._shown(route, known.get(route.name, ()), problems, configured=route in tables.configured)
                for route in tables.served
            ]
        )

    def _shown(
        self, route: ProxyRoute, known: Sequence[Upstream], problems: Mapping[str, str], *, configured: bool
    ) -> RouteShown:
        require = tuple(f"{name}={value}" for name, value in route.require)
        upstreams = tuple(
            self._upstream(route, url, each, problems) for url, each in zip(route.upstreams, known, strict=False)
        )
        well = not known or any(each.healthy for each in known)
        return RouteShown(
            prefix=route.name,
            upstream=route.upstreams,
            strip_prefix=route.strip_prefix,
            require=require,
            methods=route.methods,
            timeout_ms=round(route.timeout_s * 1000),
            source="file" if configured else "live",
            healthy=well,
            upstreams=upstreams,
        )

    def _upstream(self, route: ProxyRoute, url: str, upstream: Upstream, problems: Mapping[str, str]) -> UpstreamShown:
        breaker, name = upstream.lane.breaker, upstream_name(route.name, url)
        since, now = breaker.failing_since, self._proxies.inventory.clock.monotonic()
        never = _NEVER if name in self._unreached() else ""
        return UpstreamShown(
            url,
            breaker.state.value,
            breaker.failures_in_a_row,
            None if since is None else round(now - since, 1),
            problems.get(name, never),
        )

    async def _dialled(self) -> dict[str, str]:
        """Dial all upstreams at once; returns why it failed, by name, or nothing for those that were reached."""
        scope = self._proxies.scope
        asked = {name: scope.start(_why_not(reach)) for name, reach in self._proxies.probes().items()}
        return {name: await answer for name, answer in asked.items()}

    async def _add(self, _request: Request, new: NewRoute) -> RouteAdded:
        route = self._routes.add(new)
        warnings = [] if route.require else [f"{route.name} is open to anyone: --require op=get would ask for a token."]
        for upstream in route.upstreams:
            warnings += await self._look(route, upstream)
        known = self._proxies.upstreams().get(route.name, ())
        return RouteAdded(self._shown(route, known, {}, configured=False), warnings)

    async def _look(self, route: ProxyRoute, upstream: str) -> list[str]:
        """Ask an upstream once for what it would be asked for, and say what would surprise."""
        path = "/" if route.strip_prefix else f"{route.name}/"
        try:
            answer = await self._client.request("GET", upstream + path, timeout_s=_PROBE_S)
        except PenstockError as error:
            return [f"{upstream} does not answer yet: {_bare(error)}"]
        if answer.status != _NOT_FOUND:
            return []
        other = "it may expect the prefix: --keep-prefix" if route.strip_prefix else "it may not expect the prefix"
        return [f"{upstream} answers 404 to GET {path}; {other}."]

    def _remove(self, request: Request) -> RouteRemoved:
        prefix = request.query_params().get("prefix", "")
        if not prefix:
            raise Malformed("Name the route: ?prefix=/shop.")
        self._routes.remove(prefix)
        return RouteRemoved(prefix)


async def _why_not(reach: Callable[[], Awaitable[None]]) -> str:
    """Dial; returns why that failed, or nothing."""
    try:
        async with timeout("dial", _PROBE_S):
            await reach()
    except PenstockError as error:
        return _bare(error)
    return ""


def _bare(error: PenstockError) -> str:
    """Return why; the detail begins with the client's own name, which says nothing to whoever named the upstream."""
    return error.detail.rpartition("out of reach: ")[2]
