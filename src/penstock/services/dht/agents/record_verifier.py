"""Verifies records off the loop, and remembers what held: the same record comes from many nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.record import ProviderRecord, check_times, read_record, signatures_hold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.services.dht.state import DhtState

REMEMBERED_MAX: Final = 4096
VERIFY_S: Final = 1.0


class RecordVerifier:
    """The verify pool's share for records."""

    def __init__(self, inventory: Inventory, state: DhtState, pool: Pool) -> None:
        """Remember nothing yet."""
        self._state = state
        self._pool = pool
        # Digests whose signatures held; bounded, the oldest goes first.
        self._held: dict[bytes, None] = {}
        metrics = inventory.metrics
        self.refused = {
            why: metrics.counter("dht_records_refused_total", "Records that were not taken.", reason=why)
            for why in ("malformed", "future", "expired", "forged", "other_key", "stale", "quota")
        }

    def read(self, value: object, key: int | None = None) -> ProviderRecord | None:
        """Parse a record and judge its times and key; None, and counted, when something is wrong."""
        try:
            record = read_record(value)
        except (Malformed, TypeError, ValueError):
            self.refused["malformed"].value += 1
            return None
        wrong = check_times(record, self._state.wall_ms())
        if wrong is None and key is not None and record.key != key:
            wrong = "other_key"
        if wrong is not None:
            self.refused[wrong].value += 1
            return None
        return record

    def knows(self, record: ProviderRecord) -> bool:
        """Tell whether these very bytes held before."""
        return record.digest in self._held

    async def holds(self, record: ProviderRecord) -> bool:
        """Verify the signatures, on a thread unless they are known to hold."""
        digest = record.digest
        if digest in self._held:
            return True
        if not await self._pool.run("verify", VERIFY_S, signatures_hold, record):
            self.refused["forged"].value += 1
            return False
        if len(self._held) >= REMEMBERED_MAX:
            del self._held[next(iter(self._held))]
        self._held[digest] = None
        return True

    async def verified(self, records: Iterable[ProviderRecord]) -> list[ProviderRecord]:
        """Return those whose signatures hold."""
        return [record for record in records if await self.holds(record)]
