"""svc-interop: webhooks of the outside world, and bytes for it. Values and the Protocol. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

import msgspec

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.method import Method, Methods
from penstock.contracts.storage import Chunk, Get, Head, ObjectInfo, Put, Stored, check_chunk

EndpointName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9_-]{1,64}$", min_length=1, max_length=64)]
DeliveryId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
WebhookOutcome: TypeAlias = Literal["accepted", "duplicate", "handshake", "refused", "failed"]
DELIVERIES_MAX: Final = 1000


class DeliverWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider's request as it arrived.

    The signature covers exactly these bytes, so nothing is normalised: `target` is path and query, names in `fields`
    are in lower case, repeated fields are not joined, and the body is not inflated.
    """

    name: EndpointName
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


class WebhookReply(msgspec.Struct, frozen=True):
    """What the provider is answered."""

    status: int
    body: bytes
    content_type: bytes


class ListEndpoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for the endpoints."""


class EndpointShown(msgspec.Struct, frozen=True):
    """An endpoint, and how many of its deliveries had which outcome since the start of the service."""

    name: str
    kind: str
    topic: str
    # A person, or `on_attack = "pause"`, paused it: its webhooks get 503.
    paused: bool
    # More bad signatures came than a minute may have.
    attacked: bool
    accepted: int = 0
    duplicate: int = 0
    handshake: int = 0
    refused: int = 0
    failed: int = 0


class EndpointList(msgspec.Struct, frozen=True):
    """The endpoints by name."""

    endpoints: tuple[EndpointShown, ...]


class ListDeliveries(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for the last deliveries, of one endpoint or of all, with one outcome or any."""

    endpoint: EndpointName | None = None
    outcome: WebhookOutcome | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=DELIVERIES_MAX)] = 50


class DeliveryShown(msgspec.Struct, frozen=True):
    """One delivery. `at` is in Unix milliseconds; `reason` says exactly why one was refused or failed."""

    id: str
    endpoint: str
    at: int
    outcome: WebhookOutcome
    reason: str
    type: str
    corr_id: str
    topic: str
    msg_id: str
    # Bytes of the event; 0 where none was kept.
    size: int
    can_replay: bool


class DeliveryList(msgspec.Struct, frozen=True):
    """Deliveries, newest first."""

    deliveries: tuple[DeliveryShown, ...]


class GetDelivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for one delivery, by its id or by the corr_id its sender was answered with."""

    id: DeliveryId


class DeliveryOpened(msgspec.Struct, frozen=True):
    """A delivery and its event, where that was kept. The body of a refused delivery never is."""

    delivery: DeliveryShown
    event: dict[str, Any] | None


class ReplayDelivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Put the event of a delivery into its topic once more."""

    id: DeliveryId


class DeliveryReplayed(msgspec.Struct, frozen=True):
    """The new message, and the delivery it repeats.

    `duplicate`: the event had failed before, and its provider has brought it since: `msg_id` is that message.
    """

    msg_id: str
    topic: str
    replayed_from: str
    duplicate: bool


class PauseEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let no webhook of this endpoint in: they get 503 until it is resumed."""

    name: EndpointName


class ResumeEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let the webhooks of this endpoint in again."""

    name: EndpointName


class Interop(Protocol):
    """What svc-interop does for the others. `deliver` is open: the signature is the credential."""

    async def deliver(self, request: DeliverWebhook, call: Call = NOBODY) -> WebhookReply:
        """Verify a webhook and make it durable; `call.origin` says where it came from."""

    async def put(self, request: Put, call: Call = NOBODY) -> Stored:
        """Store bytes; Conflict when `expect` does not match, Backpressure in brownout."""

    async def head(self, request: Head, call: Call = NOBODY) -> ObjectInfo:
        """Tell an object's size; NotFound."""

    async def get(self, request: Get, call: Call = NOBODY) -> Chunk:
        """Read bytes of an object; goes on in brownout."""

    async def endpoints(self, request: ListEndpoints, call: Call = NOBODY) -> EndpointList:
        """List the endpoints; needs op=admin, as all below."""

    async def deliveries(self, request: ListDeliveries, call: Call = NOBODY) -> DeliveryList:
        """List the last deliveries."""

    async def delivery(self, request: GetDelivery, call: Call = NOBODY) -> DeliveryOpened:
        """Show one delivery; NotFound when it is no longer held."""

    async def replay(self, request: ReplayDelivery, call: Call = NOBODY) -> DeliveryReplayed:
        """Send its event again; Conflict when no event was kept."""

    async def pause(self, request: PauseEndpoint, call: Call = NOBODY) -> EndpointShown:
        """Pause an endpoint; NotFound."""

    async def resume(self, request: ResumeEndpoint, call: Call = NOBODY) -> EndpointShown:
        """Resume an endpoint; NotFound."""


METHODS: Final = Methods(
    6,
    [
        Method(1, "deliver", DeliverWebhook, WebhookReply),
        Method(2, "put", Put, Stored, idempotent=True),
        Method(3, "head", Head, ObjectInfo, idempotent=True),
        Method(4, "get", Get, Chunk, idempotent=True, check_answer=check_chunk),
        Method(5, "endpoints", ListEndpoints, EndpointList, idempotent=True),
        Method(6, "deliveries", ListDeliveries, DeliveryList, idempotent=True),
        Method(7, "delivery", GetDelivery, DeliveryOpened, idempotent=True),
        Method(8, "replay", ReplayDelivery, DeliveryReplayed),
        Method(9, "pause", PauseEndpoint, EndpointShown, idempotent=True),
        Method(10, "resume", ResumeEndpoint, EndpointShown, idempotent=True),
    ],
    service="interop",
)
