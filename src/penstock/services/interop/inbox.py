"""The last deliveries, for people: in memory, bounded by number and by bytes; pure."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts.interop import DELIVERIES_MAX, DeliveryShown, WebhookOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.contracts.mailbox import Send

BYTES_MAX: Final = 16 << 20
_OVERHEAD_BYTES: Final = 512


class InboxDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery as an operator sees it. The body of a refused one is not kept."""

    corr_id: str
    endpoint: str
    at_ms: int
    outcome: WebhookOutcome
    reason: str = ""
    event_type: str = ""
    msg_id: str = ""
    # What was sent to the mailbox, or should have been, so that it can be shown and sent again.
    sent: Send | None = None

    @property
    def weight(self) -> int:
        """Return about how many bytes it holds."""
        return _OVERHEAD_BYTES + (0 if self.sent is None else len(self.sent.payload))


class WebhookInbox:
    """A ring of deliveries, and counts by endpoint and outcome since the start.

    A delivery's id is the time of its arrival and its number, so that one of an earlier life of the service names
    nothing: it must not stand for another delivery of now.
    """

    def __init__(self, deliveries_max: int = DELIVERIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """Bound the ring by deliveries and by bytes."""
        self._deliveries_max = deliveries_max
        self._bytes_max = bytes_max
        self._held: deque[InboxDelivery] = deque()
        self._bytes = 0
        # Of the oldest one held; the others follow it.
        self._first = 0
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, delivery: InboxDelivery) -> None:
        """Keep a delivery; the oldest make room."""
        held = self._held
        held.append(delivery)
        self._bytes += delivery.weight
        while len(held) > self._deliveries_max or self._bytes > self._bytes_max:
            self._bytes -= held.popleft().weight
            self._first += 1
        self.note(delivery.endpoint, delivery.outcome)

    def note(self, endpoint: str, outcome: WebhookOutcome) -> None:
        """Count a delivery without keeping it."""
        name = (endpoint, outcome)
        self.counts[name] = self.counts.get(name, 0) + 1

    def count(self, endpoint: str, outcome: WebhookOutcome) -> int:
        """Return how many deliveries of an endpoint had this outcome."""
        return self.counts.get((endpoint, outcome), 0)

    def newest(self, limit: int, endpoint: str = "", outcome: str = "") -> list[DeliveryShown]:
        """Return the newest deliveries, newest first."""
        found = (
            _shown(number, each)
            for number, each in self._numbered()
            if (not endpoint or each.endpoint == endpoint) and (not outcome or each.outcome == outcome)
        )
        return list(islice(found, limit))

    def find(self, name: str) -> tuple[DeliveryShown, InboxDelivery] | None:
        """Return the delivery of this id, or the newest one with this corr_id; one that was refused comes last.

        A sender may choose its corr_id. One without the secret must not hide somebody else's delivery by it.
        """
        same = [(number, each) for number, each in self._numbered() if name in (_id(number, each), each.corr_id)]
        same.sort(key=lambda pair: (_id(*pair) != name, pair[1].outcome == "refused"))
        return (_shown(*same[0]), same[0][1]) if same else None

    def _numbered(self) -> Iterator[tuple[int, InboxDelivery]]:
        last = self._first + len(self._held) - 1
        return ((last - back, each) for back, each in enumerate(reversed(self._held)))


def _id(number: int, delivery: InboxDelivery) -> str:
    return f"{delivery.at_ms:x}-{number}"


def _shown(number: int, delivery: InboxDelivery) -> DeliveryShown:
    sent = delivery.sent
    return DeliveryShown(
        id=_id(number, delivery),
        endpoint=delivery.endpoint,
        at=delivery.at_ms,
        outcome=delivery.outcome,
        reason=delivery.reason,
        type=delivery.event_type,
        corr_id=delivery.corr_id,
        topic="" if sent is None else sent.topic,
        msg_id=delivery.msg_id,
        size=0 if sent is None else len(sent.payload),
        can_replay=sent is not None,
    )
