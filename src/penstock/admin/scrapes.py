"""How often an address may read `/metrics` without the operator token, where that is open to all.

The page is large: sending it takes more work than most requests. A scraper needs it once in a few seconds, so each
address has a small bucket, and an address that empties it gets 429. The operator is never counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import RateLimited
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.memo import Memo
from penstock.net.server.admission import Refusal
from penstock.net.server.caps import peer_block

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request

SCRAPES_RPS: Final = 10.0
SCRAPES_DEPTH: Final = 20.0
METRICS_PATHS: Final = frozenset({"/metrics", "/v1/node/metrics"})
_ADDRESSES_KEPT: Final = 1024


class ScrapeQuota:
    """Counts what each address reads of the metrics without the operator token."""

    def __init__(self, inventory: Inventory, name: str, *, is_operator: Callable[[Request], bool]) -> None:
        """List the quota; nobody is remembered before the first scrape."""
        self._is_operator = is_operator
        self._now = inventory.clock.monotonic
        self._buckets: Memo[str, TokenBucket] = inventory.memo(f"{name}.scrapers", Memo(_ADDRESSES_KEPT))
        said = f"This address reads the metrics too often: {SCRAPES_RPS:g} times a second is the most."
        hint = "Read them less often, or with the operator token."
        self._refusal = Refusal(RateLimited(said, scope="scrapes", limit="scrapes", limit_value=SCRAPES_RPS, hint=hint))
        self.refused = 0
        inventory.limit(
            f"{name}.scrapes_each",
            SCRAPES_DEPTH,
            f"metrics pages of an address, {SCRAPES_RPS:g}/s; empty: 429 rate_limited",
            lambda: {"refused": self.refused},
        )
        inventory.metrics.watched("quota_reject_total", "Requests a limiter refused.", kind="scrapes").append(
            lambda: self.refused
        )

    def admit(self, request: Request) -> Refusal | None:
        """Refuse a scrape of an address that had too many."""
        if request.route.path not in METRICS_PATHS or self._is_operator(request):
            return None
        block, now = peer_block(request.peer), self._now()
        bucket = self._buckets.get(block)
        if bucket is None:
            bucket = TokenBucket("scrapes", rate=SCRAPES_RPS, depth=SCRAPES_DEPTH, now=now)
            self._buckets.put(block, bucket)
        if bucket.try_take(now):
            return None
        self.refused += 1
        return self._refusal
