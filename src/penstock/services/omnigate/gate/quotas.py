"""Quotas: token buckets for everything together, for an address, for a capability.

Empty is a refusal made beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import RateLimited
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.memo import Memo
from penstock.net.server.admission import Refusal
from penstock.net.server.caps import address_block
from penstock.wire.plain_words import counted

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory, Row
    from penstock.net.message import Peer
    from penstock.services.omnigate.config import QuotaOptions

BUCKETS_MAX: Final = 16_384
"""How many addresses, and how many capabilities, are remembered at once."""
DEPTH_S: Final = 2.0
"""A bucket holds what flows in in so many seconds, as the global one does by default."""
_BLOCKS_KEPT: Final = 4096


class QuotaBuckets:
    """A bucket for each key, in two tables.

    A key that was not seen for a whole period is dropped: its bucket is full again.

    When a table overflows, the period ends early. So a flood of new addresses can give old ones a fresh full bucket,
    and can never empty one.
    """

    __slots__ = ("_began", "_last", "_now", "capacity", "depth", "rate", "refused")

    def __init__(self, rate: float, now: float, capacity: int = BUCKETS_MAX) -> None:
        """Let `rate` a second flow into each; 0 is off."""
        self.capacity = capacity
        self.refused = 0
        self._now: dict[Hashable, list[float]] = {}
        self._last: dict[Hashable, list[float]] = {}
        self._began = now
        self.set_rate(rate)

    def set_rate(self, rate: float) -> None:
        """Change the rate; what is in the buckets stays, up to the new depth."""
        self.rate = rate
        self.depth = max(1.0, rate * DEPTH_S)

    def __len__(self) -> int:
        """Count the buckets remembered."""
        return len(self._now) + len(self._last)

    def take(self, key: Hashable, now: float) -> bool:
        """Take a token from a key's bucket if there is one."""
        if not self.rate:
            return True
        bucket = self._now.get(key)
        if bucket is None:
            bucket = self._enter(key, now)
        level = bucket[0] + (now - bucket[1]) * self.rate
        if level > self.depth:
            level = self.depth
        bucket[1] = now
        if level < 1.0:
            bucket[0] = level
            self.refused += 1
            return False
        bucket[0] = level - 1.0
        return True

    def give_back(self, key: Hashable) -> None:
        """Return a token that should not have been taken."""
        bucket = self._now.get(key) or self._last.get(key)
        if bucket is not None:
            bucket[0] = min(self.depth, bucket[0] + 1.0)

    def turn(self, now: float) -> None:
        """Forget whoever was not seen since the period before; such a bucket is full."""
        if now - self._began >= DEPTH_S:
            self._rotate(now)

    def _enter(self, key: Hashable, now: float) -> list[float]:
        if len(self._now) >= self.capacity // 2:
            self._rotate(now)
        bucket = self._now[key] = self._last.pop(key) if key in self._last else [self.depth, now]
        return bucket

    def _rotate(self, now: float) -> None:
        self._last, self._now, self._began = self._now, {}, now


class GatewayQuotas:
    """The three quotas of a gateway."""

    def __init__(self, inventory: Inventory, quotas: QuotaOptions, now: float) -> None:
        self.all = TokenBucket("global", rate=quotas.default_rps, depth=quotas.burst_rps, now=now)
        self.per_ip = QuotaBuckets(0, now)
        self.per_cap = QuotaBuckets(0, now)
        self._blocks: Memo[str, tuple[str]] = inventory.memo("quotas.addresses", Memo(_BLOCKS_KEPT))
        self.apply(quotas)
        self._declare(inventory)

    def apply(self, quotas: QuotaOptions) -> None:
        """Follow the settings."""
        self.all.rate, self.all.depth = float(quotas.default_rps), float(quotas.burst_rps)
        self.per_ip.set_rate(float(quotas.per_ip_rps))
        self.per_cap.set_rate(float(quotas.per_cap_rps))
        self.all_used = _refusal("global", "default_rps", quotas.default_rps)
        self.ip_used = _refusal("per_ip", "per_ip_rps", quotas.per_ip_rps)
        self.cap_used = _refusal("per_cap", "per_cap_rps", quotas.per_cap_rps)

    def turn(self, now: float) -> None:
        """Let the tables forget."""
        self.per_ip.turn(now)
        self.per_cap.turn(now)

    def address(self, peer: Peer) -> tuple[str]:
        """Name who an unverified request belongs to: an IPv4 address, an IPv6 /64, or a user on a Unix socket.

        A tuple, so that no tenant's name can be one.
        """
        block = self._blocks.get(peer.host)
        if block is None or peer.uid is not None:
            name = address_block(peer.host) if peer.uid is None else f"uid:{peer.uid}"
            block = (name,)
            if peer.uid is None:
                self._blocks.put(peer.host, block)
        return block

    def _declare(self, inventory: Inventory) -> None:
        reads = (
            ("global", lambda: self.all.refused),
            ("per_ip", lambda: self.per_ip.refused),
            ("per_cap", lambda: self.per_cap.refused),
        )
        for scope, read in reads:
            counted = inventory.metrics.watched("quota_reject_total", "Requests a limiter refused.", kind=scope)
            counted.append(read)
        inventory.limit("quotas.global", self.all.depth, "requests; empty: 429 rate_limited", self._live_all)
        for name, table in (("per_ip", self.per_ip), ("per_cap", self.per_cap)):
            inventory.limit(f"quotas.{name}", BUCKETS_MAX, "buckets remembered; empty: 429 rate_limited", _live(table))

    def _live_all(self) -> Row:
        return {"capacity": self.all.depth, "rate": self.all.rate, "refused": self.all.refused}


def _live(table: QuotaBuckets) -> Callable[[], Row]:
    return lambda: {"in_use": len(table), "rate": table.rate, "refused": table.refused}


def _refusal(scope: str, setting: str, most: int) -> Refusal:
    whose, hint = _QUOTAS[scope]
    said = f"{whose} may make {counted(most, 'request')} a second (omnigate.quotas.{setting}); the quota is used up."
    key = f"omnigate.quotas.{setting}"
    return Refusal(RateLimited(said, scope=scope, limit=scope, limit_value=most, setting=key, hint=hint))


_QUOTAS: Final = {
    "global": ("All callers together", "Wait for Retry-After; the operator can raise the setting."),
    "per_ip": (
        "Callers of one address without a good token",
        "Wait for Retry-After, or send a good token: its requests are not held to this quota.",
    ),
    "per_cap": ("Callers with one token", "Wait for Retry-After; the operator can raise the setting."),
}
