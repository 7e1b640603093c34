"""A service of this process whose requests are signed by who sends them: the SQS face of svc-interop.

The signature covers the method, the path, the Host and the body, so nothing of a request is changed on the way, and
the service's own handler checks it. Until then a request is a stranger's: it comes in by its address and is charged to
it. A request that the service took is not: its address gets back what it paid. So clients with a key are not held to
the quotas, as those with a good token are not, and a flood without one is refused at the end of its headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.net.message import Response
from penstock.net.server.route import Route
from penstock.services.omnigate.gate.ticket import GateTicket

if TYPE_CHECKING:
    from penstock.net.message import HandlerResult, Request


# By these a rule of a policy names the routes here: their paths are `/` and others that are no prefix of their own.
SIGNED_TAGS: Final = frozenset({"sqs"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedService:
    """The service, and its routes as it wants them at a gateway."""

    name: str
    routes: Sequence[Route]


def mount_signed(service: SignedService | None, prefixes: Iterable[tuple[str, ...]]) -> dict[Route, str]:
    """Return the routes to serve, each with the service behind it; none where a configured prefix stands in their way.

    An operator who leads `/` or one of these paths somewhere else means it: then the service has its own port alone.
    """
    if service is None:
        return {}
    firsts = {(), *((segment,) for segment in map(_first, service.routes) if segment)}
    if any(prefix[:1] in firsts for prefix in prefixes):
        return {}
    return {_behind_gate(route): service.name for route in service.routes}


def _first(route: Route) -> str:
    return route.path.split("/")[1]


def _behind_gate(route: Route) -> Route:
    handler = route.handler

    def handle(request: Request) -> HandlerResult:
        result: HandlerResult = handler(request)
        # Whatever is not a refusal was signed well: nothing else is done before that is known.
        if not isinstance(result, Response) or result.status < 400:
            _take_for_known(request)
        return result

    return replace(route, handler=handle)


def _take_for_known(request: Request) -> None:
    if isinstance(request.ticket, GateTicket):
        request.ticket.vouched(request)
