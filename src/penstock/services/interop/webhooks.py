"""Worker duty for webhooks: write events, store large bodies, put an endpoint's events into the mailbox in one batch.

What comes here was verified (`judging`). A batch is worked in two steps. First every webhook becomes an event, which
takes no I/O. Then, endpoint by endpoint, the events go to the mailbox. A webhook is answered with 202 only after the
mailbox has accepted its event durably; when the mailbox fails, the answer is 503, nothing was claimed, and the
provider's next try is the same event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from blake3 import blake3

from penstock.contracts.call import Call
from penstock.contracts.interop_bodies import inflated
from penstock.contracts.mailbox import Send
from penstock.contracts.storage import Put, Storage
from penstock.kernel.deadline import use_deadline
from penstock.kernel.errors import NotReady, PenstockError, Timeout
from penstock.net.message import AcceptedJson
from penstock.services.interop.authority import Purpose
from penstock.services.interop.endpoint_topics import Claimed, EndpointTopics
from penstock.services.interop.events import INLINE_BYTES_MAX, StoredBody, WebhookArrival, write_event
from penstock.services.interop.inbox import InboxDelivery
from penstock.services.interop.providers.claims import idem_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.contracts.interop import WebhookOutcome
    from penstock.kernel.clock import Clock
    from penstock.services.interop.authority import BridgeAuthority
    from penstock.services.interop.calls import BridgeCalls
    from penstock.services.interop.endpoints import WebhookEndpoint
    from penstock.services.interop.providers.verdict import WebhookRequest, WebhookVerdict
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.work import WebhookJob

BODY_BYTES_MAX: Final = 1 << 20
_encode: Final = msgspec.json.Encoder().encode


class WebhookAnswer(msgspec.Struct, frozen=True):
    """The mailbox has the event."""

    accepted: bool
    msg_id: str
    duplicate: bool
    corr_id: str


class Behind(NamedTuple):
    """The services behind, each with the discipline of its calls."""

    topics: EndpointTopics
    storage: Storage | None
    storage_calls: BridgeCalls
    authority: BridgeAuthority


class _Verified(NamedTuple):
    """A webhook that its provider sent, on its way to the mailbox."""

    job: WebhookJob
    arrival: WebhookArrival
    body: bytes
    # Its payload is empty while the body has yet to be stored.
    send: Send


class WebhookDesk:
    """Works off batches of webhooks."""

    def __init__(self, behind: Behind, records: BridgeRecords, clock: Clock) -> None:
        """Take what is behind and the teller of decisions."""
        self._behind = behind
        self._records = records
        self._clock = clock

    async def work(self, jobs: Sequence[WebhookJob]) -> None:
        """Answer every job of a batch."""
        by_endpoint: dict[str, list[_Verified]] = {}
        for job in jobs:
            verified = self._prepare(job)
            if verified is not None:
                by_endpoint.setdefault(verified.arrival.endpoint, []).append(verified)
        for group in by_endpoint.values():
            await self._pass_on(group)

    # --- events ------------------------------------------------------------------------------------------------------

    def _prepare(self, job: WebhookJob) -> _Verified | None:
        """Make the event of one webhook; one that is late, or whose body is no text of its encoding, is answered."""
        if job.deadline is not None and job.deadline.expired(self._clock.monotonic()):
            job.fail(Timeout("work_queue", budget_s=job.deadline.budget_s))
            return None
        try:
            return self._event_of(job)
        except PenstockError as error:
            self._records.refused(job.value.endpoint, job.corr_id, error.code)
            job.fail(error)
            return None

    @staticmethod
    def _event_of(job: WebhookJob) -> _Verified:
        """Make the message of a verified webhook; a body that is too large for one is stored later."""
        endpoint, request, verdict, at_ms = job.value
        body = _inflated(request)
        claim = endpoint.claim.choose(endpoint.verifier, request, verdict)
        arrival = WebhookArrival(endpoint.kind, endpoint.name, at_ms, claim)
        large = len(body) > INLINE_BYTES_MAX
        send = Send(
            endpoint.topic,
            b"" if large else write_event(arrival, endpoint.headers, request, verdict, body),
            idem_key=None if claim is None else idem_key(endpoint.name, endpoint.kind, claim),
            attrs=_attrs(endpoint, verdict),
            key=None if endpoint.key is None else endpoint.key.find(endpoint.verifier, request) or None,
        )
        return _Verified(job, arrival, body, send)

    # --- passing on --------------------------------------------------------------------------------------------------

    async def _pass_on(self, group: list[_Verified]) -> None:
        """Send the events of one endpoint; what goes wrong with the whole is the answer of each."""
        first = min((each.job.deadline for each in group if each.job.deadline), key=lambda due: due.at, default=None)
        outcomes: Sequence[Claimed | PenstockError]
        try:
            with use_deadline(first):
                whole = [each if each.send.payload else await self._stored(each) for each in group]
                outcomes = await self._send(whole)
        except PenstockError as error:
            whole, outcomes = group, [error] * len(group)
        for each, outcome in zip(whole, outcomes, strict=True):
            self._answer(each, outcome)

    async def _stored(self, verified: _Verified) -> _Verified:
        """Store a body that is too large for an event, and name it by its address."""
        storage = self._behind.storage
        if storage is None:
            raise NotReady("svc-storage does not run here.", phase="absent", service="svc-storage")
        call = await self._call(verified, "svc-storage", "put")
        put = Put(verified.body)
        stored = await self._behind.storage_calls.call("put", lambda: storage.put(put, call))
        endpoint, request, verdict, _ = verified.job.value
        where = StoredBody(stored.address, stored.size)
        event = write_event(verified.arrival, endpoint.headers, request, verdict, where)
        return verified._replace(send=msgspec.structs.replace(verified.send, payload=event))

    async def _send(self, group: list[_Verified]) -> list[Claimed | PenstockError]:
        call = await self._call(group[0], "svc-mailbox", "send")
        return await self._behind.topics.send_events([each.send for each in group], call)

    async def _call(self, verified: _Verified, audience: str, op: str) -> Call:
        topic = verified.send.topic if audience == "svc-mailbox" else ""
        purpose = Purpose(f"webhook:accept:{verified.arrival.endpoint}", audience, op, topic)
        return await self._behind.authority.call(purpose, verified.job.corr_id)

    def _answer(self, verified: _Verified, outcome: Claimed | PenstockError) -> None:
        job, endpoint = verified.job, verified.job.value.endpoint
        if isinstance(outcome, PenstockError):
            self._records.delivered(endpoint, _told(verified, "failed", reason=outcome.code))
            job.fail(outcome)
            return
        result: WebhookOutcome = "duplicate" if outcome.duplicate else "accepted"
        told = _told(verified, result, msg_id=outcome.msg_id)
        self._records.delivered(endpoint, told, f"b3:{blake3(verified.body).hexdigest()}")
        answer = WebhookAnswer(True, outcome.msg_id, outcome.duplicate, job.corr_id)
        job.done(AcceptedJson(_encode(answer)))


def _told(verified: _Verified, outcome: WebhookOutcome, *, reason: str = "", msg_id: str = "") -> InboxDelivery:
    return InboxDelivery(
        corr_id=verified.job.corr_id,
        endpoint=verified.arrival.endpoint,
        at_ms=verified.arrival.at_ms,
        outcome=outcome,
        reason=reason,
        event_type=verified.job.value.verdict.event_type,
        msg_id=msg_id,
        sent=verified.send if verified.send.payload else None,
    )


def _attrs(endpoint: WebhookEndpoint, verdict: WebhookVerdict) -> dict[str, str]:
    """Return what a consumer may want to see without reading the event."""
    found = {"provider": endpoint.kind, "endpoint": endpoint.name}
    if verdict.event_type:
        found["type"] = verdict.event_type
    return found


def _inflated(request: WebhookRequest) -> bytes:
    """Return the body as it was meant: the signature covered the bytes on the wire, the event has the content."""
    encoding = request.label(b"content-encoding")
    if not encoding:
        return request.body
    return inflated(request.body, encoding)
