"""Walks into buckets nobody has looked into for an hour, so that their contacts stay good."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import PenstockError
from penstock.services.dht.core.ids import BUCKETS, ID_BITS

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.services.dht.agents.lookup_worker import LookupWorkers
    from penstock.services.dht.state import DhtState

REFRESH_S: Final = 3600.0
LOOK_S: Final = 60.0


def target_in(own: int, bucket: int, rng: random.Random) -> int:
    """Draw an id that falls into a bucket."""
    width = ID_BITS - 1 - bucket
    return own ^ (1 << width) ^ rng.getrandbits(width)


class Refresher:
    """One bucket at a time."""

    def __init__(self, state: DhtState, workers: LookupWorkers) -> None:
        """Lean on the lookup pool."""
        self._state = state
        self._workers = workers
        self._rng = random.Random()  # noqa: S311 - targets need not be secret

    async def run(self, child: Child) -> None:
        """Look every minute."""
        while not await child.shutdown.sleep(LOOK_S):
            for bucket in self.stale(self._state.monotonic()):
                await self.refresh(bucket)
                if child.shutdown.draining:
                    return

    def stale(self, now: float) -> list[int]:
        """Name the buckets a network of this size fills that had no lookup for an hour."""
        nodes, touched = self._state.size.nodes, self._workers.touched_at
        return [b for b in range(BUCKETS) if nodes / 2 ** (b + 1) >= 1 and now - touched[b] >= REFRESH_S]

    async def refresh(self, bucket: int) -> None:
        """Walk to a random id of one bucket; a full pool is no reason to fail, the next minute comes."""
        try:
            await self._workers.walk_in_background(target_in(self._state.own, bucket, self._rng))
        except PenstockError:
            return
