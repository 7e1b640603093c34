"""svc-interop through the gateway: the same paths, bodies and answers as at its own door.

A webhook needs no capability here either: its signature is the credential, and it covers the bytes as they were sent.
So the gateway passes on path, query, fields and body as they came. It charges the sender's address, and a token in the
request is not looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock.contracts import interop as i
from penstock.contracts import storage as s
from penstock.contracts.interop_bodies import PutAnswer, read_put
from penstock.kernel.errors import NotReady, PenstockError, Unsupported
from penstock.net.message import Response
from penstock.net.server.route import Route
from penstock.services.omnigate.own.calling import call_of, convert, present, text_of
from penstock.services.omnigate.own.objects import DOWNSTREAM_ERRORS, ObjectReads

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.services.omnigate.own.calling import DownstreamCalls

T = TypeVar("T")
_SERVICE: Final = "svc-interop"
_BODY_BYTES_MAX: Final = 1 << 20
_WEBHOOK_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "bad_origin",
    "not_found",
    "over_limit",
    "unsupported",
    "policy_blocked",
    "busy",
    "rate_limited",
    "backpressure",
    "timeout",
    "not_ready",
    "downstream_unavailable",
)


class GatewayInteropRoutes:
    """`/webhooks/{name}`, `/v1/webhooks` and what is below it, `/put` and `/o/{address}`."""

    def __init__(self, interop: i.Interop | None, downstream: DownstreamCalls, *, chunk_s: float) -> None:
        """Stand in front of the contract; without a svc-interop every route says so."""
        self._interop = interop
        self._downstream = downstream
        self.reads = ObjectReads(interop, downstream, service=_SERVICE, chunk_s=chunk_s)

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [*self._world_routes(), *self._inbox_routes()]

    def _world_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/webhooks/{name}",
                params={"name": i.EndpointName},
                handler=self._deliver,
                op="webhook",
                open=True,
                raw_body=True,
                body_bytes_max=_BODY_BYTES_MAX,
                summary="Take a provider's webhook: verified, then durable, then answered.",
                errors=_WEBHOOK_ERRORS,
            ),
            Route(
                method="POST",
                path="/put",
                handler=self._put,
                octets=True,
                answer=PutAnswer,
                op="put",
                summary="Store up to 1 MiB under their address; larger ones go to svc-interop itself.",
                errors=(*DOWNSTREAM_ERRORS, "conflict", "over_limit", "backpressure", "unsupported"),
            ),
            Route(
                method="GET",
                path="/o/{address}",
                params={"address": s.Address},
                handler=self.reads.answer,
                op="get",
                summary="Read an object, or a range of it.",
                errors=(*DOWNSTREAM_ERRORS, "not_found", "integrity"),
            ),
        ]

    def _inbox_routes(self) -> list[Route]:
        base, one = "/v1/webhooks", "/v1/webhooks/deliveries/{id}"
        rows: tuple[tuple[str, str, str, type, type, str], ...] = (
            ("GET", base, "endpoints", i.ListEndpoints, i.EndpointList, "Endpoints, with counts of their deliveries."),
            (
                "GET",
                f"{base}/deliveries",
                "deliveries",
                i.ListDeliveries,
                i.DeliveryList,
                "The last deliveries, newest first.",
            ),
            ("GET", one, "delivery", i.GetDelivery, i.DeliveryOpened, "One delivery with its event."),
            (
                "POST",
                f"{one}/replay",
                "replay",
                i.ReplayDelivery,
                i.DeliveryReplayed,
                "Send the event of a delivery again.",
            ),
            (
                "POST",
                f"{base}/endpoints/{{name}}/pause",
                "pause",
                i.PauseEndpoint,
                i.EndpointShown,
                "Let no webhook of an endpoint in.",
            ),
            (
                "POST",
                f"{base}/endpoints/{{name}}/resume",
                "resume",
                i.ResumeEndpoint,
                i.EndpointShown,
                "Let the webhooks of an endpoint in again.",
            ),
        )
        return [
            Route(
                method=method,
                path=path,
                params={"id": i.DeliveryId, "name": i.EndpointName},
                query=i.ListDeliveries if kind is i.ListDeliveries else None,
                handler=self._asker(name, kind),
                answer=answer,
                op="admin",
                summary=text,
                errors=(*DOWNSTREAM_ERRORS, "not_found", "conflict"),
            )
            for method, path, name, kind, answer, text in rows
        ]

    # --- webhooks ----------------------------------------------------------------------------------------------------

    async def _deliver(self, request: Request) -> Response:
        interop, call = present(self._interop, _SERVICE), call_of(request)
        target = request.path.encode("ascii") + (b"?" + request.query if request.query else b"")
        given = i.DeliverWebhook(_name(request), target, tuple(request.fields), request.body)

        async def deliver() -> i.WebhookReply | NotReady:
            try:
                return await interop.deliver(given, call)
            except NotReady as error:
                # A paused endpoint is no illness of the service, and must not open the breaker for the others.
                if error.facts.get("phase") == "paused":
                    return error
                raise

        # The bridge has tried again by itself where that helps.
        answer = await self._downstream.call("webhook", deliver, idempotent=False)
        if isinstance(answer, PenstockError):
            raise answer
        return Response(answer.status, answer.body, answer.content_type)

    # --- puts --------------------------------------------------------------------------------------------------------

    async def _put(self, request: Request) -> Response:
        interop, call = present(self._interop, _SERVICE), call_of(request)
        expect = text_of(request.headers.get(b"x-expect-addr"))
        put = convert({"data": _put_bytes(request), "expect": expect}, s.Put)
        stored = await self._downstream.call("put", lambda: interop.put(put, call), idempotent=True)
        answer = msgspec.json.encode(PutAnswer(stored.address, request.corr_id))
        return Response(202, answer, headers=[(b"Location", f"/o/{stored.address}".encode("ascii"))])

    # --- the inbox ---------------------------------------------------------------------------------------------------

    def _asker(self, name: str, kind: type[T]) -> Callable[[Request], Coroutine[Any, Any, Any]]:
        async def ask(request: Request) -> Any:  # noqa: ANN401 - the route says which
            interop, call = present(self._interop, _SERVICE), call_of(request)
            value = convert({**request.query_params(), **request.params}, kind)
            method: Callable[..., Awaitable[Any]] = getattr(interop, name)
            return await self._downstream.call(name, lambda: method(value, call), idempotent=name != "replay")

        return ask


def _name(request: Request) -> str:
    return convert({"name": request.params["name"]}, i.PauseEndpoint).name


def _put_bytes(request: Request) -> bytes:
    """Return the bytes of a put, which came whole: as they are, or in `payload` of a JSON object."""
    media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type == b"application/octet-stream":
        return request.body
    if media_type != b"application/json":
        raise Unsupported("A put is application/octet-stream or application/json.")
    return read_put(request.body)
