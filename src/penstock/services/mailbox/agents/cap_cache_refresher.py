"""The Capability Cache Refresher: trims the verifier's cache on schedule, and at a spike of refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.mailbox.authority import MailboxAuthority

# So many refusals within a second are a spike.
SPIKE: Final = 50
_LOOK_S: Final = 1.0


class CapCacheRefresher:
    """Calls `trim`, which removes what is expired or no longer trusted from the verifier's cache."""

    def __init__(
        self, inventory: Inventory, authority: MailboxAuthority, trim: Callable[[], object], ttl_s: float
    ) -> None:
        self._authority = authority
        self._trim = trim
        self._ttl_s = ttl_s
        metrics = inventory.metrics
        self._trims = {
            why: metrics.counter("cap_cache_trims_total", "Trims of the capability cache.", why=why)
            for why in ("schedule", "spike")
        }

    async def run(self, child: Child) -> None:
        """Look once a second, until the service drains."""
        due = child.clock.monotonic() + self._ttl_s
        seen = self._authority.failures
        while not await child.shutdown.sleep(min(_LOOK_S, self._ttl_s)):
            failures, seen = self._authority.failures - seen, self._authority.failures
            now = child.clock.monotonic()
            if now >= due or failures >= SPIKE:
                self._trims["schedule" if now >= due else "spike"].value += 1
                self._trim()
                due = now + self._ttl_s
