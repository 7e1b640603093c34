"""Verifies records off the loop, and remembers what held: the same record comes from many nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.record import ProviderRecord, check_times, read_record, signatures_hold

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.services.dht.state import DhtState

REMEMBERED_MAX: Final = 4096
VERIFY_S: Final = 1.0
INLINE_PER_S: Final = 200.0
INLINE_DEPTH: Final = 50.0


class RecordVerifier:
    """The verify pool's share for records."""

    def __init__(self, inventory: Inventory, state: DhtState, pool: Pool) -> None:
        self._state = state
        self._pool = pool
        # Records whose signatures held, by their bytes; bounded, the oldest goes first.
        self._held: dict[tuple[bytes, tuple[bytes, ...]], ProviderRecord] = {}
        # One signature costs less than the way to a thread and back. So many a second are verified where they are
        # needed; a peer that sends more, or records with two signatures, is sent to the pool.
        self._inline = inventory.bucket("verify_inline", rate=INLINE_PER_S, depth=INLINE_DEPTH)
        metrics = inventory.metrics
        self.refused = {
            why: metrics.counter("dht_records_refused_total", "Records that were not taken.", reason=why)
            for why in ("malformed", "future", "expired", "forged", "other_key", "stale", "quota")
        }

    def read(self, value: object, key: int | None = None) -> ProviderRecord | None:
        """Parse a record and judge its times and key; None, and counted, when something is wrong."""
        try:
            record = self._remembered(value) or read_record(value)
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

    def _remembered(self, value: object) -> ProviderRecord | None:
        if type(value) is not list or len(value) != 2 or type(value[0]) is not bytes or type(value[1]) is not list:
            return None
        signatures = value[1]
        if not all(type(each) is bytes for each in signatures):
            return None
        return self._held.get((value[0], tuple(signatures)))

    def settle(self, record: ProviderRecord) -> bool | None:
        """Say at once whether the signatures hold, where that is known or cheap; None when it needs a thread."""
        if (record.body, record.signatures) in self._held:
            return True
        if len(record.keys) > 1 or not self._inline.try_take(self._state.monotonic()):
            return None
        return self._note(record, holds=signatures_hold(record))

    def _note(self, record: ProviderRecord, *, holds: bool) -> bool:
        if not holds:
            self.refused["forged"].value += 1
            return False
        if len(self._held) >= REMEMBERED_MAX:
            del self._held[next(iter(self._held))]
        self._held[record.body, record.signatures] = record
        return True

    async def holds(self, record: ProviderRecord) -> bool:
        """Verify the signatures, on a thread unless they are known or cheap."""
        known = self.settle(record)
        if known is not None:
            return known
        return self._note(record, holds=await self._pool.run("verify", VERIFY_S, signatures_hold, record))
