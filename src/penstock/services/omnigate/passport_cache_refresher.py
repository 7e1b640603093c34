"""The Passport Cache Refresher: keeps judged tokens from outliving what they were judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory

TRIM_S: Final = 30.0


class PassportCacheRefresher:
    """Drops the verifier's judgements on schedule; the proven signatures stay, so the next look costs no crypto."""

    def __init__(self, inventory: Inventory, trim: Callable[[], object]) -> None:
        """Trim by calling `trim`."""
        self._trim = trim
        self._trims = inventory.metrics.counter(
            "cap_cache_trims_total", "Trims of the capability cache.", why="schedule"
        )

    async def run(self, child: Child) -> None:
        """Trim until the service drains."""
        while not await child.shutdown.sleep(TRIM_S):
            self._trims.value += 1
            self._trim()
