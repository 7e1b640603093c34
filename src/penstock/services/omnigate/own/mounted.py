"""The node's own services under their own paths, so that one URL reaches everything.

A service of this process hands its routes over as data, and the gateway serves them behind its gate: quotas, class,
capability and policy come first, then the service's own handler answers, streams and long polls included. The service
judges the capability once more, on what only it can see, such as the topic in a body. Budgets were counted at the gate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from penstock.kernel.errors import Busy
from penstock.net.promise import Promise
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.net.message import HandlerResult, Request

_PARAMETER: Final = re.compile(r"\{\w+\}")
# What is a service's own business stays at its own port: health pages, and older spellings of a path.
_PREFIX: Final = "/v1/"


@dataclass(frozen=True, kw_only=True, slots=True)
class MountedService:
    """A service of this process, and the routes of its own listener."""

    # As an audience names it: `svc-mailbox`.
    name: str
    routes: Sequence[Route]


def mount(services: Iterable[MountedService], taken: Iterable[Route]) -> dict[Route, str]:
    """Return the routes to serve, each with the service behind it; those in `taken` are served in another way."""
    shapes = {_shape(route) for route in taken}
    return {
        _behind_gate(route): service.name
        for service in services
        for route in service.routes
        if route.path.startswith(_PREFIX) and _shape(route) not in shapes
    }


def _shape(route: Route) -> tuple[str, str]:
    """Return what the router tells routes apart by: the names of parameters do not count."""
    return route.method, _PARAMETER.sub("{}", route.path)


def _behind_gate(route: Route) -> Route:
    if not route.long_poll:
        return replace(route)
    handler = route.handler

    def wait_parked(request: Request, body: Any) -> HandlerResult:  # noqa: ANN401 - the route says which
        """Give the slot back while a long poll waits for something to send."""
        result = handler(request, body)
        waits = isinstance(result, Promise | CoroutineType) and getattr(body, "wait_ms", 0) > 0
        if waits and not request.ticket.park():
            _give_up(result)
            raise Busy("Too many requests wait at the gateway already.", limit="max_parked")
        return result

    return replace(route, handler=wait_parked)


def _give_up(result: HandlerResult) -> None:
    if isinstance(result, Promise):
        result.cancel()
    elif isinstance(result, CoroutineType):
        result.close()
