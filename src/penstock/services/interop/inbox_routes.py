"""The inbox over HTTP, for people and their programs: endpoints, the last deliveries, replay, pause and resume."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock.contracts import interop as i
from penstock.kernel.errors import Malformed
from penstock.net.caller import call_of
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.contracts.interop import Interop
    from penstock.net.message import Request

T = TypeVar("T")
_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "rate_limited",
    "not_ready",
    "timeout",
    "canceled",
    "internal",
)
_PARAMS: Final = {"id": i.DeliveryId, "name": i.EndpointName}
_REPLAY_ERRORS: Final = (*_ERRORS, "not_found", "conflict", "busy", "downstream_unavailable")


class InboxRoutes:
    """`/v1/webhooks`."""

    def __init__(self, api: Interop) -> None:
        """Stand in front of the contract."""
        self._api = api

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        return [
            Route(
                method="GET",
                path="/v1/webhooks",
                handler=self._endpoints,
                answer=i.EndpointList,
                op="admin",
                summary="Endpoints, with counts of their deliveries.",
                errors=_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/webhooks/deliveries",
                handler=self._deliveries,
                answer=i.DeliveryList,
                query=i.ListDeliveries,
                op="admin",
                summary="The last deliveries, newest first.",
                errors=_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/webhooks/deliveries/{id}",
                params=_PARAMS,
                handler=self._delivery,
                answer=i.DeliveryOpened,
                op="admin",
                summary="One delivery with its event.",
                errors=(*_ERRORS, "not_found"),
            ),
            Route(
                method="POST",
                path="/v1/webhooks/deliveries/{id}/replay",
                params=_PARAMS,
                handler=self._replay,
                answer=i.DeliveryReplayed,
                op="admin",
                summary="Send the event of a delivery again.",
                errors=_REPLAY_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/webhooks/endpoints/{name}/pause",
                params=_PARAMS,
                handler=self._turn(i.PauseEndpoint, self._api.pause),
                answer=i.EndpointShown,
                op="admin",
                summary="Let no webhook of an endpoint in.",
                errors=(*_ERRORS, "not_found"),
            ),
            Route(
                method="POST",
                path="/v1/webhooks/endpoints/{name}/resume",
                params=_PARAMS,
                handler=self._turn(i.ResumeEndpoint, self._api.resume),
                answer=i.EndpointShown,
                op="admin",
                summary="Let the webhooks of an endpoint in again.",
                errors=(*_ERRORS, "not_found"),
            ),
        ]

    async def _endpoints(self, request: Request) -> i.EndpointList:
        return await self._api.endpoints(i.ListEndpoints(), call_of(request))

    async def _deliveries(self, request: Request) -> i.DeliveryList:
        return await self._api.deliveries(_read(request.query_params(), i.ListDeliveries), call_of(request))

    async def _delivery(self, request: Request) -> i.DeliveryOpened:
        return await self._api.delivery(_read(request.params, i.GetDelivery), call_of(request))

    async def _replay(self, request: Request) -> i.DeliveryReplayed:
        return await self._api.replay(_read(request.params, i.ReplayDelivery), call_of(request))

    @staticmethod
    def _turn(kind: type[T], method: Callable[..., Any]) -> Callable[[Request], Coroutine[Any, Any, i.EndpointShown]]:
        async def turn(request: Request) -> i.EndpointShown:
            shown: i.EndpointShown = await method(_read(request.params, kind), call_of(request))
            return shown

        return turn


def _read(given: dict[str, str], kind: type[T]) -> T:
    """Read a value from a path or a query; numbers come as text there."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise Malformed(str(exc)) from exc
