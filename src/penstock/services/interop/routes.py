"""HTTP to jobs and back, and what is refused before any work: rate, brownout, origin, size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import (
    Backpressure,
    BadOrigin,
    Malformed,
    NotFound,
    NotReady,
    OverLimit,
    RateLimited,
    Unauthenticated,
    Unsupported,
)
from penstock.kernel.worker import Job
from penstock.net.bearer import bearer
from penstock.net.message import Response
from penstock.net.server.route import Route
from penstock.services.interop.providers.decoding import decode_base64
from penstock.services.interop.providers.verdict import WebhookRequest
from penstock.services.interop.webhooks import BODY_BYTES_MAX, RATIO_MAX, WebhookAnswer
from penstock.services.interop.work import PutWork, WebhookWork
from penstock.wire.ids import parse_address
from penstock.wire.inflate import Inflater

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.snapshot import Snapshot
    from penstock.net.message import Request
    from penstock.services.interop.brownout import Brownout
    from penstock.services.interop.config import InteropOptions
    from penstock.services.interop.endpoints import Endpoints, WebhookEndpoint
    from penstock.services.interop.reads import BridgeReads
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.work import BridgeJob

AUDIENCE: Final = "svc-interop"
# In brownout webhooks up to this size still go through: a provider such as GitHub never sends again.
SHED_ABOVE_BYTES: Final = 64 << 10
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


class PutMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the payload is."""

    type: str = ""
    content_encoding: str = "identity"


class PutIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes to store, in base64."""

    payload: str
    meta: PutMeta = PutMeta()


class PutAnswer(msgspec.Struct, frozen=True):
    """Where the bytes are."""

    address: str
    corr_id: str


_read_put: Final = msgspec.json.Decoder(PutIn).decode


class BridgeRoutes:
    """Every route but the SQS face."""

    def __init__(  # noqa: PLR0913 - the parts of the service that a request meets
        self,
        inventory: Inventory,
        options: InteropOptions,
        endpoints: Snapshot[Endpoints],
        work: Channel[BridgeJob],
        *,
        records: BridgeRecords,
        brownout: Brownout,
        reads: BridgeReads,
        verifier: Verifier | None,
    ) -> None:
        """Declare the rate and the places for puts."""
        self._options = options
        self._endpoints = endpoints
        self._work = work
        self._records = records
        self._brownout = brownout
        self._reads = reads
        self._verifier = verifier
        self._clock = inventory.clock
        self.rate = inventory.bucket("rps", rate=options.rps, depth=options.burst)
        self._puts = inventory.limiter("puts", max(1, options.workers // 2))

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        return [
            Route(
                method="POST",
                path="/webhooks/{name}",
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
                deadline_s=PUT_DEADLINE_S,
                errors=_PUT_ERRORS,
            ),
            Route(
                method="GET",
                path="/o/{addr}",
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
        op = request.route.op
        if op not in ("webhook", "put"):
            if not request.route.open and not bearer(request) and self._verifier is not None:
                raise Unauthenticated("No capability was given.", reason="missing")
            return
        if not self.rate.try_take(self._clock.monotonic()):
            raise RateLimited("More webhooks and puts than this service takes.", scope="rps")
        self._shed(op, max(0, request.head.length))
        if op == "webhook":
            endpoint = self._endpoint(request)
            refused = endpoint.pin.refuses(request.peer.host, request.fields)
            if refused:
                self._records.refused(endpoint, request.corr_id, f"bad_origin:{refused}")
                raise BadOrigin
        elif not bearer(request) and self._verifier is not None:
            raise Unauthenticated("No capability was given.", reason="missing")

    def _shed(self, op: str, length: int) -> None:
        if self._brownout.state.active and (op == "put" or length > SHED_ABOVE_BYTES):
            raise Backpressure("The bridge sheds puts and large webhooks for now.", retry_after=5)

    def _endpoint(self, request: Request) -> WebhookEndpoint:
        endpoint = self._endpoints.value.get(request.params["name"])
        if endpoint is None:
            raise NotFound("There is no such endpoint.")
        if endpoint.name in self._records.paused:
            raise NotReady("This endpoint is paused.", phase="paused")
        return endpoint

    # --- webhooks ----------------------------------------------------------------------------------------------------

    def _webhook(self, request: Request) -> Any:  # noqa: ANN401 - the future of the job's answer
        # A chunked body has no length in its head: it is weighed here.
        self._shed("webhook", len(request.body))
        endpoint = self._endpoint(request)
        target = request.path.encode("ascii") + (b"?" + request.query if request.query else b"")
        webhook = WebhookRequest(request.fields, request.body, target)
        work = WebhookWork(endpoint, webhook, self._records.now_ms())
        job: BridgeJob = Job(work, deadline=request.deadline, corr_id=request.corr_id)
        self._work.try_send(job)
        job.reply.add_done_callback(partial(self._answered, request))
        return job.reply

    def _answered(self, request: Request, reply: asyncio.Future[Response]) -> None:
        """Count an answer for the brownout. One that was given up on counts if its deadline had passed."""
        now = self._clock.monotonic()
        if reply.cancelled():
            status = 504 if request.deadline.expired(now) else 0
        else:
            error = reply.exception()
            status = reply.result().status if error is None else getattr(error, "status", 500)
        if status:
            self._brownout.note_answer(now, status)

    # --- puts --------------------------------------------------------------------------------------------------------

    async def _put(self, request: Request) -> Response:
        await self._allow(request, "put")
        expect = request.headers.get(b"x-expect-addr")
        address = None if expect is None else parse_address(expect.decode("ascii", "replace"))
        self._puts.acquire_or_busy()
        try:
            work = PutWork(self._put_pieces(request), address)
            job: BridgeJob = Job(work, deadline=request.deadline, corr_id=request.corr_id)
            self._work.try_send(job)
            job.reply.add_done_callback(partial(self._answered, request))
            return await job.reply
        finally:
            self._puts.release()

    def _put_pieces(self, request: Request) -> AsyncIterator[bytes]:
        media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type == b"application/octet-stream":
            return request.stream()
        if media_type == b"application/json":
            return _json_pieces(request)
        raise Unsupported("A put is application/octet-stream or application/json.")

    # --- reads -------------------------------------------------------------------------------------------------------

    async def _get(self, request: Request) -> Any:  # noqa: ANN401 - a whole answer or a stream
        await self._allow(request, "get")
        return await self._reads.get(request)

    @staticmethod
    def _read_ready(_request: Request) -> dict[str, object]:
        return {"ready": True}

    async def _allow(self, request: Request, op: str) -> None:
        if self._verifier is None:
            return
        context = RequestContext(
            aud=AUDIENCE,
            op=op,
            method=request.method,
            route="/" + "/".join(request.segments),
            ip=request.peer.host or None,
        )
        cost = max(0, request.head.length) if op == "put" else 0
        verdict: Grant | Awaitable[Grant] = self._verifier.verify(bearer(request), context, cost_bytes=cost)
        if not isinstance(verdict, Grant):
            await verdict


async def _json_pieces(request: Request) -> AsyncIterator[bytes]:
    """Read `{payload, meta?}` whole, which is small, and give its bytes as one piece."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise OverLimit(
                "A put as JSON has at most 1 MiB; send larger ones as application/octet-stream.", limit="body"
            )
    try:
        asked = _read_put(bytes(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed(f"The body is not a put: {exc}.") from exc
    data = decode_base64(asked.payload.encode("utf-8"))
    if data is None:
        raise Malformed("`payload` is not base64.", reason="bad_base64")
    yield _inflated(data, asked.meta.content_encoding)


def _inflated(data: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return data
    inflater = Inflater(encoding.encode("ascii", "replace"), ratio_cap=RATIO_MAX, bytes_max=BODY_BYTES_MAX)
    whole = b"".join(inflater.feed(data))
    inflater.finish()
    return whole
