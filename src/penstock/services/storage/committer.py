"""The Committer: makes large objects visible, one after the other. Equal bytes come to the same one, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.contracts.storage import Stored
from penstock.kernel.child import Child
from penstock.kernel.errors import DownstreamUnavailable, Integrity, NotFound, OverLimit
from penstock.kernel.worker import JobLoop

if TYPE_CHECKING:
    from penstock.services.storage.incoming import IncomingObject
    from penstock.services.storage.store import ObjectStore

# Longer than any sync a working disk takes; a call beyond it is stuck, and its outcome unknown.
COMMIT_S: Final = 60.0


class Committer:
    """Works off the `commit` channels."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        metrics = store.inventory.metrics
        self._seconds = metrics.histogram("commit_seconds", "From whole to visible and durable.")

    async def run(self, child: Child) -> None:
        """Work until the channel is closed and empty."""
        channel = self._store.commits[child.index]
        clock = child.clock.monotonic

        async def commit(incoming: IncomingObject) -> Stored:
            began = clock()
            try:
                return await self._commit(incoming)
            finally:
                self._seconds.observe(clock() - began)

        await JobLoop("committer", channel, commit, self._store.inventory.metrics).run(clock)

    async def _commit(self, incoming: IncomingObject) -> Stored:
        assert incoming.made is not None
        try:
            outcome = await self._publish(incoming)
        except (OverLimit, DownstreamUnavailable):
            raise  # the disk said no: nothing became visible
        except BaseException:
            # Given up while a thread was at it. It may become visible yet, so it counts as stored.
            incoming.stored()
            raise
        else:
            self._store.outcomes[outcome].value += 1
            return Stored(incoming.made.address, incoming.size, existed=outcome == "existed")
        finally:
            incoming.close()

    async def _publish(self, incoming: IncomingObject) -> str:
        store, made = self._store, incoming.made
        assert made is not None
        if await store.commit("commit", COMMIT_S, incoming.publish, replace=False):
            self._count_new(incoming)
            return "new"
        if await self._intact(made.address):
            return "existed"
        # What is there is damaged, and here are the bytes: put them in its place.
        await store.commit("commit", COMMIT_S, incoming.publish, replace=True)
        incoming.replaced()
        store.log.info("object.healed")
        return "healed"

    async def _intact(self, address: str) -> bool:
        """Tell whether the object that is there is whole; done here, where no reader's place is needed."""
        store = self._store
        try:
            found = await store.commit("find", COMMIT_S, store.objects.find, address)
            if not store.knows(found):
                await store.commit("verify", COMMIT_S, store.objects.verify, found)
                store.remember(found)
        except (NotFound, Integrity):
            return False
        return True

    def _count_new(self, incoming: IncomingObject) -> None:
        incoming.stored()
        self._store.bytes_in.value += incoming.size
