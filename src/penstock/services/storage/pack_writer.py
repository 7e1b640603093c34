"""The PackWriter: makes small objects durable, many with one sync.

It takes what waits in the `pack` channel, writes it as one group, and answers. A group of any size is written by the
one thread of the pool; while it is on its way to the disk the next one gathers, so that a slow disk makes large
groups. A group of a few objects is written right here, on the loop, as long as syncs are fast: handing it to the
thread would cost more CPU than writing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import Canceled, Closed, DownstreamUnavailable, PenstockError, Timeout
from penstock.kernel.sync_pace import SyncPace
from penstock.services.storage.committer import COMMIT_S
from penstock.services.storage.pack_format import GROUP_OBJECTS_MAX

if TYPE_CHECKING:
    from penstock.services.storage.engines.engine import Outcome
    from penstock.services.storage.packed_put import PackedPut
    from penstock.services.storage.store import ObjectStore

# With objects of 64 KiB a group has 16 MiB at most.
_GROUP_MAX: Final = min(256, GROUP_OBJECTS_MAX)
# A larger group is worth a visit to the thread, and the next one gathers meanwhile.
LOOP_OBJECTS_MAX: Final = 4


class PackWriter:
    """Works off the `pack` channel."""

    def __init__(self, store: ObjectStore) -> None:
        """Write to this store's packs."""
        self._store = store
        metrics = store.inventory.metrics
        self._seconds = metrics.histogram("commit_seconds", "From whole to visible and durable.")
        self._groups = metrics.counter("pack_groups_total", "Groups of small objects, each made durable by one sync.")
        # How fast the syncs of this store's disk have been.
        self.pace = SyncPace()
        self._slow = metrics.counter("slow_syncs_total", "Commits of small objects that took over 2 ms.")
        self._clock = store.inventory.clock.monotonic

    async def run(self, child: Child) -> None:
        """Work until the channel is closed and empty."""
        channel = self._store.small_puts
        while True:
            try:
                waiting = await channel.recv_many(_GROUP_MAX)
            except Closed:
                return
            group = [put for put in waiting if put.take()]
            if group:
                await self._commit(group)

    async def _commit(self, group: list[PackedPut]) -> None:
        store = self._store
        objects = [(put.digest, put.data) for put in group]
        began = self._clock()
        try:
            if self._stays_here(objects):
                outcomes = store.engine.commit(objects)
            else:
                outcomes = await store.pack("pack", COMMIT_S, store.engine.commit, objects)
        except Timeout:
            _give_up(group, DownstreamUnavailable("The disk did not answer in time.", outcome="unknown"))
            return
        except BaseException:
            _give_up(group, Canceled("The commit did not end.", outcome="unknown"))
            raise
        now = self._clock()
        self._slow.value += self.pace.note(now - began)
        self._groups.value += 1
        for put, outcome in zip(group, outcomes, strict=True):
            self._seconds.observe(now - put.began)
            self._answer(put, outcome)

    def _stays_here(self, objects: list[tuple[bytes, bytes]]) -> bool:
        """Tell whether to commit on the loop: a few objects, a fast disk, and nobody on the thread."""
        few = len(objects) <= LOOP_OBJECTS_MAX
        return few and self.pace.fast and self._store.packs_idle and self._store.engine.is_plain(objects)

    def _answer(self, put: PackedPut, outcome: Outcome | OSError) -> None:
        store = self._store
        if isinstance(outcome, OSError):
            put.close()
            put.fail(store.condition("pack", outcome))
            return
        if outcome == "new":
            put.stored()
            store.bytes_in.value += len(put.data)
        elif outcome == "healed":
            store.log.info("object.healed")
        put.close()
        store.outcomes[outcome].value += 1
        put.keep(outcome)


def _give_up(group: list[PackedPut], error: PenstockError) -> None:
    """Fail a group that the thread may still be writing.

    Its objects may become durable yet, so they count as stored.
    """
    for put in group:
        put.stored()
        put.close()
        put.fail(error)
