"""Is this webhook its provider's? Asked in the callback that has read it, before it takes a place among the work.

A check of a signature is arithmetic: it waits for nothing. Done here, a forged webhook costs one check and one prebuilt
answer. It takes no place in `work`, so forged ones in numbers never make the bridge refuse a genuine one as `busy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.errors import Malformed, Unauthenticated
from penstock.net.message import Response
from penstock.net.server.admission import Refusal
from penstock.services.interop.inbox import InboxDelivery
from penstock.services.interop.providers.verdict import verify
from penstock.services.interop.work import WebhookWork

if TYPE_CHECKING:
    from penstock.kernel.clock import Clock
    from penstock.services.interop.endpoints import WebhookEndpoint
    from penstock.services.interop.providers.verdict import HandshakeAnswer, WebhookRequest
    from penstock.services.interop.records import BridgeRecords


class WebhookJudge:
    """Answers what is refused and what is a handshake; anything else is work."""

    def __init__(self, records: BridgeRecords, clock: Clock) -> None:
        """Prebuild the two refusals: the sender learns the class of what was wrong, the audit the exact reason."""
        self._records = records
        self._wall = clock.wall
        self._forged = Refusal(Unauthenticated("The webhook is not accepted."))
        self._senseless = Refusal(Malformed("The webhook cannot be understood."))

    def judge(
        self, endpoint: WebhookEndpoint, request: WebhookRequest, corr_id: str
    ) -> WebhookWork | Refusal | Response:
        """Verify one webhook; never raises."""
        now = self._wall()
        verdict = verify(endpoint.verifier, request, now)
        if verdict.refusal is not None:
            self._records.refused(endpoint, corr_id, verdict.refusal)
            return self._senseless if verdict.malformed else self._forged
        if verdict.handshake is not None:
            return self._shake_hands(endpoint, verdict.handshake, corr_id, int(now * 1000))
        return WebhookWork(endpoint, request, verdict, int(now * 1000))

    def _shake_hands(self, endpoint: WebhookEndpoint, answer: HandshakeAnswer, corr_id: str, at_ms: int) -> Response:
        told = InboxDelivery(corr_id=corr_id, endpoint=endpoint.name, at_ms=at_ms, outcome="handshake")
        self._records.delivered(endpoint, told)
        return Response(answer.status, answer.body, answer.content_type)
