"""Keeps one tenant from filling the backlog or the idem_keys for all others. Pure.

A topic counts for the tenant that is seen sending to it when it is there. Twice a second the retention walks over the
topics and adds up what each tenant has. A tenant above its share of the backlog may store nothing more until it is
below again, as long as there are other tenants at all. Between two walks a tenant may get a little beyond its share;
the bounds of the whole backlog hold exactly. Idem_keys are counted as they are claimed, for the current and the last
window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.services.mailbox.ledger import MailboxBounds
    from penstock.services.mailbox.shards.topics import Topic


class BacklogShares:
    """Which tenants are above their share of the backlog."""

    __slots__ = ("_bytes", "_bytes_max", "_messages", "_messages_max", "crowding")

    def __init__(self, bounds: MailboxBounds, share: float) -> None:
        """Let each tenant have this part of the bounds; 1 is no limit."""
        off = share >= 1.0
        self._messages_max = float("inf") if off else share * bounds.backlog_messages
        self._bytes_max = float("inf") if off else share * bounds.backlog_bytes
        self._messages: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        # Replaced at the end of every walk.
        self.crowding: frozenset[str] = frozenset()

    def count(self, topics: Iterable[Topic]) -> None:
        """Add the next topics of a walk."""
        for topic in topics:
            if topic.tenant is not None:
                self._messages[topic.tenant] += topic.living + topic.incoming + topic.dead
                self._bytes[topic.tenant] += topic.bytes

    def walked(self) -> None:
        """End a walk over all topics: judge the tenants by it, and begin the next."""
        over = {tenant for tenant, count in self._messages.items() if count > self._messages_max}
        over |= {tenant for tenant, count in self._bytes.items() if count > self._bytes_max}
        self.crowding = frozenset(over) if len(self._messages) > 1 else frozenset()
        self._messages, self._bytes = Counter(), Counter()


class ClaimShares:
    """How many idem_keys each tenant claimed lately, of one ledger."""

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        self._since = 0

    def note(self, tenant: str, wall: int, window_ms: float, count: int = 1) -> None:
        """Count claims."""
        self._age(wall, window_ms)
        self._now[tenant] += count

    def _age(self, wall: int, window_ms: float) -> None:
        """Forget what is older than two windows."""
        if wall - self._since >= window_ms:
            recent = wall - self._since < 2 * window_ms
            self._before = self._now if recent else Counter()
            self._now, self._since = Counter(), wall

    def full(self, tenant: str, most: float, wall: int, window_ms: float) -> bool:
        """Tell whether a tenant has claimed its share, while there are others."""
        self._age(wall, window_ms)
        mine = self._now[tenant] + self._before[tenant]
        return mine >= most and (self._now.keys() | self._before.keys()) != {tenant}
