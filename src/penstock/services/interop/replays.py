"""An event once more: a person's act, with a passport made for it."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from penstock.contracts.interop import DeliveryReplayed
from penstock.kernel.errors import Conflict, NotFound, PenstockError
from penstock.services.interop.authority import Purpose
from penstock.services.interop.endpoint_topics import Claimed
from penstock.services.interop.events import replayed_event
from penstock.services.interop.providers.claims import replay_key

if TYPE_CHECKING:
    from penstock.contracts.mailbox import Send
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.webhooks import Behind


class EventReplays:
    """Sends held events again.

    An event that the mailbox has is sent under a new claim: it becomes a new message, marked by `replayed_from`. One
    that never got there (`failed`) keeps its own claim: if its provider has brought it since, that message is the
    answer, and if the provider brings it later, this one is.
    """

    def __init__(self, behind: Behind, records: BridgeRecords) -> None:
        """Take the services behind and the held deliveries."""
        self._behind = behind
        self._records = records

    async def replay(self, name: str, corr_id: str) -> DeliveryReplayed:
        """Send the event of a delivery again; NotFound, or Conflict when no event was kept."""
        found = self._records.inbox.find(name)
        if found is None:
            raise NotFound("There is no such delivery; the last 1,000 are held until the service restarts.")
        shown, delivery = found
        if delivery.sent is None:
            raise Conflict(f"This delivery was {delivery.outcome}: no event of it was kept.", reason="no_event")
        # A call that is made again because its answer got lost has the same corr_id, and is the same replay.
        fresh = replay_key(shown.id, corr_id or token_hex(8))
        claim = delivery.sent.idem_key if delivery.outcome == "failed" else fresh
        event = replayed_event(delivery.sent.payload, shown.id)
        send = msgspec.structs.replace(delivery.sent, payload=event, idem_key=claim)
        sent = await self._send(send, delivery.endpoint, corr_id)
        self._records.replayed(shown, sent.msg_id, corr_id)
        return DeliveryReplayed(sent.msg_id, send.topic, shown.id, sent.duplicate)

    async def _send(self, send: Send, endpoint: str, corr_id: str) -> Claimed:
        behind = self._behind
        purpose = Purpose(f"webhook:replay:{endpoint}", "svc-mailbox", "send", send.topic)
        call = await behind.authority.call(purpose, corr_id)
        (outcome,) = await behind.topics.send_events([send], call)
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome
