"""Worker duty for webhooks: verify each, store large bodies, put an endpoint's events into the mailbox in one batch.

A batch is worked in two steps. First every request is judged, which takes no I/O: bad ones and handshakes are answered
at once. Then, endpoint by endpoint, the events go to the mailbox. A webhook is answered with 202 only after the mailbox
has accepted its event durably; when the mailbox fails, the answer is 503, nothing was claimed, and the provider's next
try is the same event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from blake3 import blake3

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Mailbox, Send
from penstock.contracts.storage import Put, Storage
from penstock.kernel.deadline import use_deadline
from penstock.kernel.errors import Malformed, NotReady, PenstockError, Timeout, Unauthenticated
from penstock.net.message import Response
from penstock.services.interop.authority import Purpose
from penstock.services.interop.claimed_sends import Claimed, send_claimed
from penstock.services.interop.events import (
    INLINE_BYTES_MAX,
    StoredBody,
    WebhookArrival,
    WebhookEvent,
    build_event,
    with_body,
)
from penstock.services.interop.inbox import InboxDelivery
from penstock.services.interop.providers.claims import idem_key
from penstock.services.interop.providers.verdict import WebhookVerdict, verify
from penstock.services.interop.work import WebhookWork
from penstock.wire.inflate import Inflater

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernel.clock import Clock
    from penstock.services.interop.authority import BridgeAuthority
    from penstock.services.interop.calls import BridgeCalls
    from penstock.services.interop.endpoints import WebhookEndpoint
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.work import BridgeJob

BODY_BYTES_MAX: Final = 1 << 20
RATIO_MAX: Final = 10
_encode: Final = msgspec.json.Encoder().encode


class WebhookAnswer(msgspec.Struct, frozen=True):
    """The mailbox has the event."""

    accepted: bool
    msg_id: str
    duplicate: bool
    corr_id: str


class Behind(NamedTuple):
    """The services behind, each with the discipline of its calls."""

    mailbox: Mailbox | None
    mailbox_calls: BridgeCalls
    storage: Storage | None
    storage_calls: BridgeCalls
    authority: BridgeAuthority


class _Verified(NamedTuple):
    """A webhook that its provider sent, on its way to the mailbox."""

    job: BridgeJob
    work: WebhookWork
    verdict: WebhookVerdict
    body: bytes
    # The event as JSON; empty while its body has yet to be stored.
    event: bytes
    key: str | None
    idem_key: str | None


class WebhookDesk:
    """Works off batches of webhooks."""

    def __init__(self, behind: Behind, records: BridgeRecords, clock: Clock) -> None:
        """Take what is behind and the teller of decisions."""
        self._behind = behind
        self._records = records
        self._clock = clock

    async def work(self, jobs: Sequence[BridgeJob]) -> None:
        """Answer every job of a batch."""
        by_endpoint: dict[str, list[_Verified]] = {}
        for job in jobs:
            verified = self._judge(job)
            if verified is not None:
                by_endpoint.setdefault(verified.work.endpoint.name, []).append(verified)
        for group in by_endpoint.values():
            await self._pass_on(group)

    # --- judging -----------------------------------------------------------------------------------------------------

    def _judge(self, job: BridgeJob) -> _Verified | None:
        """Verify one webhook; answers it here unless its event has to be sent."""
        work = job.value
        assert isinstance(work, WebhookWork)
        if job.deadline is not None and job.deadline.expired(self._clock.monotonic()):
            job.fail(Timeout("work_queue", budget_s=job.deadline.budget_s))
            return None
        now = self._clock.wall()  # lint: allow PK012 providers sign wall times
        verdict = verify(work.endpoint.verifier, work.request, now)
        if verdict.refusal is not None:
            self._refuse(job, work.endpoint, verdict)
            return None
        if verdict.handshake is not None:
            self._shake_hands(job, work, verdict)
            return None
        try:
            return self._event_of(job, work, verdict)
        except PenstockError as error:
            self._records.refused(work.endpoint, job.corr_id, error.code)
            job.fail(error)
            return None

    def _refuse(self, job: BridgeJob, endpoint: WebhookEndpoint, verdict: WebhookVerdict) -> None:
        self._records.refused(endpoint, job.corr_id, str(verdict.refusal))
        if verdict.malformed:
            job.fail(Malformed("The webhook cannot be understood."))
        else:
            job.fail(Unauthenticated("The webhook is not accepted."))

    def _shake_hands(self, job: BridgeJob, work: WebhookWork, verdict: WebhookVerdict) -> None:
        answer = verdict.handshake
        assert answer is not None
        self._records.delivered(work.endpoint, self._told(job, work, "handshake", verdict))
        job.done(Response(answer.status, answer.body, answer.content_type))

    def _event_of(self, job: BridgeJob, work: WebhookWork, verdict: WebhookVerdict) -> _Verified:
        endpoint, request = work.endpoint, work.request
        body = _inflated(work)
        claim = endpoint.claim.choose(endpoint.verifier, request, verdict)
        key = None if endpoint.key is None else endpoint.key.find(endpoint.verifier, request) or None
        event = b"" if len(body) > INLINE_BYTES_MAX else with_body(self._event(work, verdict), body)
        named = None if claim is None else idem_key(endpoint.name, endpoint.kind, claim)
        return _Verified(job, work, verdict, body, event, key, named)

    def _event(self, work: WebhookWork, verdict: WebhookVerdict) -> WebhookEvent:
        endpoint = work.endpoint
        arrival = WebhookArrival(endpoint.kind, endpoint.name, work.at_ms)
        claim = endpoint.claim.choose(endpoint.verifier, work.request, verdict)
        return build_event(arrival, endpoint.verifier, work.request, verdict, claim)

    # --- passing on --------------------------------------------------------------------------------------------------

    async def _pass_on(self, group: list[_Verified]) -> None:
        """Send the events of one endpoint; what goes wrong with the whole is the answer of each."""
        first = min((each.job.deadline for each in group if each.job.deadline), key=lambda due: due.at, default=None)
        try:
            with use_deadline(first):
                whole = [each if each.event else await self._stored(each) for each in group]
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
        event = with_body(self._event(verified.work, verified.verdict), StoredBody(stored.address, stored.size))
        return verified._replace(event=event)

    async def _send(self, group: list[_Verified]) -> list[Claimed | PenstockError]:
        mailbox = self._behind.mailbox
        if mailbox is None:
            raise NotReady("svc-mailbox does not run here.", phase="absent", service="svc-mailbox")
        call = await self._call(group[0], "svc-mailbox", "send")
        sends = [
            Send(each.work.endpoint.topic, each.event, idem_key=each.idem_key, key=each.key, attrs=_attrs(each))
            for each in group
        ]
        return await self._behind.mailbox_calls.call("send", lambda: send_claimed(mailbox, sends, call))

    async def _call(self, verified: _Verified, audience: str, op: str) -> Call:
        endpoint = verified.work.endpoint
        topic = endpoint.topic if audience == "svc-mailbox" else ""
        purpose = Purpose(f"webhook:accept:{endpoint.name}", audience, op, topic)
        return await self._behind.authority.call(purpose, verified.job.corr_id)

    def _answer(self, verified: _Verified, outcome: Claimed | PenstockError) -> None:
        job, work, verdict = verified.job, verified.work, verified.verdict
        if isinstance(outcome, PenstockError):
            told = self._told(job, work, "failed", verdict, reason=outcome.code)
            self._records.delivered(work.endpoint, told)
            job.fail(outcome)
            return
        result = "duplicate" if outcome.duplicate else "accepted"
        told = self._told(job, work, result, verdict, msg_id=outcome.msg_id, event=verified.event)
        self._records.delivered(work.endpoint, told, f"b3:{blake3(verified.body).hexdigest()}")
        answer = WebhookAnswer(True, outcome.msg_id, outcome.duplicate, job.corr_id)
        job.done(Response(202, _encode(answer)))

    @staticmethod
    def _told(  # noqa: PLR0913 - a row of the inbox
        job: BridgeJob,
        work: WebhookWork,
        result: str,
        verdict: WebhookVerdict,
        *,
        reason: str = "",
        msg_id: str = "",
        event: bytes = b"",
    ) -> InboxDelivery:
        return InboxDelivery(
            corr_id=job.corr_id,
            endpoint=work.endpoint.name,
            at_ms=work.at_ms,
            verdict=result,
            reason=reason,
            event_type=verdict.event_type,
            msg_id=msg_id,
            event=event,
        )


def _attrs(verified: _Verified) -> dict[str, str]:
    """Return what a consumer may want to see without reading the event."""
    found = {"provider": verified.work.endpoint.kind, "endpoint": verified.work.endpoint.name}
    return found | ({"type": verified.verdict.event_type} if verified.verdict.event_type else {})


def _inflated(work: WebhookWork) -> bytes:
    """Return the body as it was meant: the signature covered the bytes on the wire, the event has the content."""
    encoding = work.request.label(b"content-encoding") or "identity"
    if encoding == "identity":
        return work.request.body
    inflater = Inflater(encoding.encode("ascii"), ratio_cap=RATIO_MAX, bytes_max=BODY_BYTES_MAX)
    body = b"".join(inflater.feed(work.request.body))
    inflater.finish()
    return body
