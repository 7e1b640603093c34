"""The last deliveries, for the operator's page: in memory, bounded by number and by bytes; pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

DELIVERIES_MAX: Final = 1000
BYTES_MAX: Final = 16 << 20
_OVERHEAD_BYTES: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxDelivery:
    """One delivery as an operator sees it. The body of a refused one is not kept."""

    corr_id: str
    endpoint: str
    at_ms: int
    # accepted, duplicate, handshake, refused or failed.
    verdict: str
    reason: str = ""
    event_type: str = ""
    msg_id: str = ""
    # The event as it was put into the mailbox, so that it can be shown and sent again.
    event: bytes = b""

    @property
    def weight(self) -> int:
        """Return about how many bytes it holds."""
        return _OVERHEAD_BYTES + len(self.event)


class WebhookInbox:
    """A ring of deliveries, and counts by endpoint and verdict since the start."""

    def __init__(self, deliveries_max: int = DELIVERIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """Bound the ring by deliveries and by bytes."""
        self._deliveries_max = deliveries_max
        self._bytes_max = bytes_max
        self._held: deque[InboxDelivery] = deque()
        self._bytes = 0
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, delivery: InboxDelivery) -> None:
        """Keep a delivery; the oldest make room."""
        self._held.append(delivery)
        self._bytes += delivery.weight
        while len(self._held) > self._deliveries_max or self._bytes > self._bytes_max:
            self._bytes -= self._held.popleft().weight
        name = (delivery.endpoint, delivery.verdict)
        self.counts[name] = self.counts.get(name, 0) + 1

    def newest(self, limit: int, endpoint: str = "") -> list[InboxDelivery]:
        """Return the newest deliveries, newest first."""
        found = (each for each in reversed(self._held) if not endpoint or each.endpoint == endpoint)
        return [each for each, _ in zip(found, range(limit), strict=False)]

    def find(self, corr_id: str) -> InboxDelivery | None:
        """Return the delivery of this corr_id, if it is still held."""
        return next((each for each in reversed(self._held) if each.corr_id == corr_id), None)
