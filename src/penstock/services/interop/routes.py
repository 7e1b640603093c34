"""HTTP to jobs and back for the world outside; no decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts.interop import EndpointName
from penstock.contracts.interop_bodies import PutAnswer, read_put
from penstock.contracts.storage import Address
from penstock.kernel.errors import OverLimit, Unauthenticated, Unsupported
from penstock.net.bearer import bearer
from penstock.net.caller import call_of
from penstock.net.message import Response, StreamResponse
from penstock.net.server.route import Route
from penstock.services.interop.providers.verdict import WebhookRequest
from penstock.services.interop.webhooks import BODY_BYTES_MAX, WebhookAnswer
from penstock.wire.ids import parse_address

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.net.server.admission import Refusal
    from penstock.services.interop.callers import BridgeCallers
    from penstock.services.interop.config import InteropOptions
    from penstock.services.interop.intake import BridgeIntake
    from penstock.services.interop.reads import BridgeReads
    from penstock.services.interop.work import WebhookPromise

PUT_DEADLINE_S: Final = 600.0
_WEBHOOK_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "bad_origin",
    "not_found",
    "over_limit",
    "unsupported",
    "busy",
    "rate_limited",
    "backpressure",
    "not_ready",
    "timeout",
    "downstream_unavailable",
    "canceled",
    "internal",
)
_PUT_ERRORS: Final = (*_WEBHOOK_ERRORS, "expired", "forbidden", "conflict")
_GET_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "not_found",
    "integrity",
    "rate_limited",
    "not_ready",
    "timeout",
    "downstream_unavailable",
    "internal",
)


class BridgeRoutes:
    """The routes for the world outside, but for the SQS face."""

    def __init__(
        self, options: InteropOptions, intake: BridgeIntake, reads: BridgeReads, callers: BridgeCallers
    ) -> None:
        """Stand in front of these."""
        self._options = options
        self._intake = intake
        self._reads = reads
        self._callers = callers

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        return [
            Route(
                method="POST",
                path="/webhooks/{name}",
                params={"name": EndpointName},
                handler=self._webhook,
                answer=WebhookAnswer,
                op="webhook",
                open=True,
                summary="Take a provider's webhook: verified, then durable, then answered.",
                raw_body=True,
                body_bytes_max=BODY_BYTES_MAX,
                deadline_s=self._options.webhook_deadline_s,
                errors=_WEBHOOK_ERRORS,
            ),
            Route(
                method="POST",
                path="/put",
                handler=self._put,
                answer=PutAnswer,
                op="put",
                stream_body=True,
                summary="Store bytes under their address.",
                body_bytes_max=self._options.put_bytes_max,
                body_setting="interop.put_max_bytes",
                body_advice="Raise interop.put_max_bytes and storage.put_max_bytes, or store it in parts.",
                deadline_s=PUT_DEADLINE_S,
                errors=_PUT_ERRORS,
            ),
            Route(
                method="GET",
                path="/o/{addr}",
                params={"addr": Address},
                handler=self._get,
                op="get",
                summary="Read an object, or a range of it.",
                errors=_GET_ERRORS,
            ),
            Route(
                method="GET",
                path="/readyz/read",
                handler=self._read_ready,
                op="readyz",
                open=True,
                summary="Tell whether objects can be read; true in brownout too.",
            ),
        ]

    # --- before any work ---------------------------------------------------------------------------------------------

    def admit(self, request: Request) -> None:
        """Refuse at the end of the headers what costs the least to refuse there: rate, brownout, origin, no token."""
        op, intake = request.route.op, self._intake
        if not request.route.open:
            self._callers.check_given(bearer(request))
        if op not in ("webhook", "put"):
            return
        intake.admit(op, max(0, request.head.length))
        if op == "webhook":
            endpoint = intake.endpoint(request.params["name"])
            if endpoint.pin.is_open:
                return
            intake.check_origin(endpoint, request.peer.host, request.fields, request.corr_id)

    # --- webhooks ----------------------------------------------------------------------------------------------------

    def _webhook(self, request: Request) -> WebhookPromise | Refusal | Response:
        # A chunked body has no length in its head: it is weighed here.
        self._intake.shed("webhook", len(request.body))
        endpoint = self._intake.endpoint(request.params["name"])
        head = request.head
        fields = head.headers if head.repeats is None else head.repeats
        webhook = WebhookRequest(fields, request.body, target_of(request))
        return self._intake.webhook(endpoint, webhook, request.deadline, request.corr_id)

    # --- puts and reads ----------------------------------------------------------------------------------------------

    async def _put(self, request: Request) -> Response:
        try:
            await self._callers.allow(call_of(request), "put", max(0, request.head.length))
        except Unauthenticated:
            self._intake.disproved()
            raise
        expect = request.headers.get(b"x-expect-addr")
        address = None if expect is None else parse_address(expect.decode("ascii", "replace"))
        stored = await self._intake.put(_put_pieces(request), address, request.deadline, request.corr_id)
        answer = msgspec.json.encode(PutAnswer(stored.address, request.corr_id))
        return Response(202, answer, headers=[(b"Location", f"/o/{stored.address}".encode("ascii"))])

    async def _get(self, request: Request) -> Response | StreamResponse:
        await self._callers.allow(call_of(request), "get")
        return await self._reads.get(request)

    @staticmethod
    def _read_ready(_request: Request) -> dict[str, object]:
        return {"ready": True}


def target_of(request: Request) -> bytes:
    """Return path and query as they were sent."""
    target = request.head.target
    if target.authority is None:
        return target.raw
    return target.path.encode("ascii") + (b"?" + target.query if target.query else b"")


def _put_pieces(request: Request) -> AsyncIterator[bytes]:
    media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type == b"application/octet-stream":
        return request.stream()
    if media_type == b"application/json":
        return _json_pieces(request)
    raise Unsupported("A put is application/octet-stream or application/json.")


async def _json_pieces(request: Request) -> AsyncIterator[bytes]:
    """Read `{payload, meta?}` whole, which is small, and give its bytes as one piece."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise OverLimit(
                "A put as JSON has at most 1 MiB; send larger ones as application/octet-stream.", limit="body"
            )
    yield read_put(bytes(body))
