"""What an operator asks of the gateway's routes: which there are, one more, one less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.kernel.errors import Malformed, PenstockError
from penstock.net.server.route import Route
from penstock.services.omnigate.proxy.live_routes import NewRoute, RemoveRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.net.calls.client import HttpClient
    from penstock.net.message import Request
    from penstock.services.omnigate.proxy.config import ProxyRoute
    from penstock.services.omnigate.proxy.live_routes import LiveRoutes

_PROBE_S: Final = 2.0
_NOT_FOUND: Final = 404
PATHS: Final = ("/admin/routes", "/v1/node/routes")
"""The page's own path, and the one that a client has at the gateway too."""


class RouteShown(msgspec.Struct, frozen=True):
    """One route; `source` is `file` for the configuration's, `live` for one that was added."""

    prefix: str
    upstream: tuple[str, ...]
    strip_prefix: bool
    require: tuple[str, ...]
    methods: tuple[str, ...]
    source: str
    healthy: bool


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

    def __init__(self, routes: LiveRoutes, client: HttpClient, healthy: Callable[[], Mapping[str, bool]]) -> None:
        """Change `routes`; ask upstreams by `client`, which is not owned."""
        self._routes = routes
        self._client = client
        self._healthy = healthy

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [route for path in PATHS for route in self._at(path)]

    def _at(self, path: str) -> list[Route]:
        return [
            Route(method="GET", path=path, handler=self._list, answer=RouteList, summary="The gateway's routes."),
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

    def _list(self, _request: Request) -> RouteList:
        tables = self._routes.tables
        return RouteList([self._shown(route, route in tables.configured) for route in tables.served])

    def _shown(self, route: ProxyRoute, configured: bool) -> RouteShown:  # noqa: FBT001 - one of two
        require = tuple(f"{name}={value}" for name, value in route.require)
        source, well = "file" if configured else "live", self._healthy().get(route.name, True)
        return RouteShown(route.name, route.upstreams, route.strip_prefix, require, route.methods, source, healthy=well)

    async def _add(self, _request: Request, new: NewRoute) -> RouteAdded:
        route = self._routes.add(new)
        warnings = [] if route.require else [f"{route.name} is open to anyone: --require op=get would ask for a token."]
        for upstream in route.upstreams:
            warnings += await self._look(route, upstream)
        return RouteAdded(self._shown(route, configured=False), warnings)

    async def _look(self, route: ProxyRoute, upstream: str) -> list[str]:
        """Ask an upstream once for what it would be asked for, and say what would surprise."""
        path = "/" if route.strip_prefix else f"{route.name}/"
        try:
            answer = await self._client.request("GET", upstream + path, timeout_s=_PROBE_S)
        except PenstockError as error:
            # The detail begins with the client's own name, which says nothing to whoever named the upstream.
            return [f"{upstream} does not answer yet: {error.detail.rpartition('out of reach: ')[2]}"]
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
