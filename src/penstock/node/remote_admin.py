"""What an operator asks of a node from elsewhere: the admin listener's own routes below `/v1/node`, at the gateway.

The gate asks for a capability as on every route of its own. Here only the operator's token will do, compared and judged
as the admin listener does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.admin.routes import ConfigurationReport, ReloadReport
from penstock.admin.sampler import HistoryOut, HistoryQuery
from penstock.kernel.errors import NotReady
from penstock.net.server.admission import Refusal
from penstock.net.server.route import Route
from penstock.services.omnigate.gate.check import operator_only
from penstock.services.omnigate.proxy.live_routes import NewRoute, RemoveRoute
from penstock.services.omnigate.proxy.route_admin import ListRoutes, RouteAdded, RouteList, RouteRemoved

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.net.message import HandlerResult, Request
    from penstock.node.build import Node

NO_ADMIN: Final = Refusal(NotReady("The admin listener does not run here.", phase="absent"))
# Method, path, query, body, answer, what it does. The handlers are the admin listener's.
_ROWS: Final[tuple[tuple[str, str, type | None, type | None, type | None, str], ...]] = (
    ("GET", "/v1/node/status", None, None, None, "Services, gates, phases, restarts."),
    ("GET", "/v1/node/inventory", None, None, None, "Every channel, task, lock, limit."),
    ("GET", "/v1/node/metrics", None, None, None, "All metrics of the node."),
    ("GET", "/v1/node/history", HistoryQuery, None, HistoryOut, "The page's figures of the last minutes or the hour."),
    (
        "GET",
        "/v1/node/config",
        None,
        None,
        ConfigurationReport,
        "Every setting with its value and its place; no secrets.",
    ),
    ("POST", "/v1/node/reload", None, None, ReloadReport, "Read the configuration again."),
    ("GET", "/v1/node/routes", ListRoutes, None, RouteList, "The gateway's routes."),
    ("POST", "/v1/node/routes", None, NewRoute, RouteAdded, "Add a route, at once."),
    ("DELETE", "/v1/node/routes", RemoveRoute, None, RouteRemoved, "Remove a route that was added."),
)
_ERRORS: Final = ("unauthenticated", "expired", "forbidden", "busy", "rate_limited", "not_ready")


class RemoteAdmin:
    """The routes, for the operator alone."""

    def __init__(self, node: Node) -> None:
        """Ask the admin listener of this node, which is built after the gateway."""
        self._node = node

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [
            Route(
                method=method,
                path=path,
                handler=self._handler(method, path),
                op="admin",
                query=query,
                body=body,
                answer=answer,
                summary=text,
                errors=_ERRORS,
            )
            for method, path, query, body, answer, text in _ROWS
        ]

    def _handler(self, method: str, path: str) -> Callable[..., HandlerResult]:
        def handle(request: Request, *body: Any) -> HandlerResult:  # noqa: ANN401 - the route says which
            refusal = self._node.judge_operator(request)
            if refusal is None:
                return self._found(method, path)(request, *body)
            # The gate has judged a token that came: it is good, only not the operator's.
            return operator_only() if refusal.error.facts.get("reason") == "bad_signature" else refusal.error

        return handle

    def _found(self, method: str, path: str) -> Callable[..., HandlerResult]:
        """Return the admin listener's handler; that there is one is tested."""
        routes = (route for part in self._node.parts if part.name == "admin" for route in part.routes)
        return next(route.handler for route in routes if (route.method, route.path) == (method, path))
