"""The interop contract: what the gateway, the framed protocol and the operator's page call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts import interop as i
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.storage import Chunk, Get, Head, ObjectInfo, Put, Stored
from penstock.kernel.deadline import Deadline, current_deadline, timeout
from penstock.kernel.errors import NotFound, OverLimit
from penstock.net.message import Response
from penstock.net.promise import answer_of
from penstock.net.server.admission import Refusal
from penstock.services.interop.providers.verdict import WebhookRequest
from penstock.services.interop.webhooks import BODY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.kernel.inventory import Inventory
    from penstock.kernel.snapshot import Snapshot
    from penstock.services.interop.callers import BridgeCallers
    from penstock.services.interop.endpoints import Endpoints, WebhookEndpoint
    from penstock.services.interop.intake import BridgeIntake
    from penstock.services.interop.reads import BridgeReads
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.replays import EventReplays
    from penstock.services.interop.work import WebhookPromise

_PUT_S: Final = 30.0


class InteropApi:
    """Implements `penstock.contracts.interop.Interop`."""

    def __init__(  # noqa: PLR0913 - what the contract leads to
        self,
        inventory: Inventory,
        endpoints: Snapshot[Endpoints],
        records: BridgeRecords,
        callers: BridgeCallers,
        *,
        intake: BridgeIntake,
        reads: BridgeReads,
        replays: EventReplays,
    ) -> None:
        """Stand in front of these."""
        self._now = inventory.clock.monotonic
        self._endpoints = endpoints
        self._records = records
        self._callers = callers
        self._intake = intake
        self._reads = reads
        self._replays = replays

    # --- for the world -----------------------------------------------------------------------------------------------

    async def deliver(self, request: i.DeliverWebhook, call: Call = NOBODY) -> i.WebhookReply:
        """Verify a webhook and make it durable: the signature is the credential."""
        intake = self._intake
        if len(request.body) > BODY_BYTES_MAX:
            raise OverLimit("A webhook has at most 1 MiB.", limit="body")
        intake.admit("webhook", len(request.body))
        endpoint = intake.endpoint(request.name)
        host = "" if call.origin is None else call.origin.ip
        intake.check_origin(endpoint, host, request.fields, call.corr_id)
        webhook = WebhookRequest(request.fields, request.body, request.target)
        due = self._deadline(intake.webhook_deadline_s)
        async with timeout("webhook", due.remaining(self._now())):
            answer = await _settled(intake.webhook(endpoint, webhook, due, call.corr_id))
        return i.WebhookReply(answer.status, answer.body, answer.content_type)

    async def put(self, request: Put, call: Call = NOBODY) -> Stored:
        """Store bytes that came whole."""
        await self._callers.allow(call, "put", len(request.data))
        self._intake.admit("put", len(request.data))
        return await self._intake.put(_whole(request.data), request.expect, self._deadline(_PUT_S), call.corr_id)

    async def head(self, request: Head, call: Call = NOBODY) -> ObjectInfo:
        """Tell an object's size."""
        await self._callers.allow(call, "get")
        return await self._reads.head(request, call.corr_id)

    async def get(self, request: Get, call: Call = NOBODY) -> Chunk:
        """Read bytes of an object."""
        await self._callers.allow(call, "get")
        return await self._reads.chunk(request, call.corr_id)

    def _deadline(self, limit_s: float) -> Deadline:
        """Return when the answer must be there: the caller's deadline, or this service's own if that is earlier."""
        own, given = Deadline.after(limit_s, self._now()), current_deadline()
        return own if given is None or own.at < given.at else given

    # --- for people --------------------------------------------------------------------------------------------------

    async def endpoints(self, request: i.ListEndpoints, call: Call = NOBODY) -> i.EndpointList:
        """List the endpoints by name."""
        await self._callers.allow(call, "admin")
        return i.EndpointList(tuple(self.shown_endpoints()))

    async def deliveries(self, request: i.ListDeliveries, call: Call = NOBODY) -> i.DeliveryList:
        """List the last deliveries, newest first."""
        await self._callers.allow(call, "admin")
        found = self._records.inbox.newest(request.limit, request.endpoint or "", request.outcome or "")
        return i.DeliveryList(tuple(found))

    async def delivery(self, request: i.GetDelivery, call: Call = NOBODY) -> i.DeliveryOpened:
        """Show one delivery with its event."""
        await self._callers.allow(call, "admin")
        found = self._records.inbox.find(request.id)
        if found is None:
            raise NotFound("There is no such delivery; the last 1,000 are held until the service restarts.")
        shown, held = found
        return i.DeliveryOpened(shown, None if held.sent is None else msgspec.json.decode(held.sent.payload))

    async def replay(self, request: i.ReplayDelivery, call: Call = NOBODY) -> i.DeliveryReplayed:
        """Put the event of a delivery into its topic once more."""
        await self._callers.allow(call, "admin")
        return await self._replays.replay(request.id, call.corr_id)

    async def pause(self, request: i.PauseEndpoint, call: Call = NOBODY) -> i.EndpointShown:
        """Let no webhook of an endpoint in."""
        await self._callers.allow(call, "admin")
        endpoint = self._known(request.name)
        self._records.pause(endpoint.name)
        return self._shown(endpoint)

    async def resume(self, request: i.ResumeEndpoint, call: Call = NOBODY) -> i.EndpointShown:
        """Let the webhooks of an endpoint in again."""
        await self._callers.allow(call, "admin")
        endpoint = self._known(request.name)
        self._records.resume(endpoint.name)
        return self._shown(endpoint)

    def shown_endpoints(self) -> list[i.EndpointShown]:
        """Return the endpoints as people see them, by name."""
        return [self._shown(endpoint) for _, endpoint in sorted(self._endpoints.value.items())]

    def _known(self, name: str) -> WebhookEndpoint:
        endpoint = self._endpoints.value.get(name)
        if endpoint is None:
            raise NotFound("There is no such endpoint.")
        return endpoint

    def _shown(self, endpoint: WebhookEndpoint) -> i.EndpointShown:
        name, inbox, attack = endpoint.name, self._records.inbox, self._records.attacks.get(endpoint.name)
        return i.EndpointShown(
            name=name,
            kind=endpoint.kind,
            topic=endpoint.topic,
            paused=name in self._records.paused,
            attacked=attack is not None and attack.active,
            accepted=inbox.count(name, "accepted"),
            duplicate=inbox.count(name, "duplicate"),
            handshake=inbox.count(name, "handshake"),
            refused=inbox.count(name, "refused"),
            failed=inbox.count(name, "failed"),
        )


async def _settled(answer: WebhookPromise | Refusal | Response) -> Response:
    """Wait for an answer that was promised; a refusal is raised, as an error of its own each time."""
    if isinstance(answer, Refusal):
        raise type(answer.error)(answer.error.detail)
    # The type that says 202 to a socket is none that a frame can carry: it leaves as plain bytes.
    return answer if isinstance(answer, Response) else Response(202, bytes(await answer_of(answer)))


async def _whole(data: bytes) -> AsyncIterator[bytes]:  # noqa: RUF029 - pieces come asynchronously
    yield data
