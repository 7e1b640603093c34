"""The Keeper: opens the engine, and removes the files of drafts that were given up."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import Closed, DownstreamUnavailable, PenstockError

if TYPE_CHECKING:
    from penstock.services.storage.incoming import IncomingObject
    from penstock.services.storage.store import ObjectStore

OPEN_S: Final = 600.0
_DROP_S: Final = 30.0


class StoreOwner:
    """Starts before everything that needs the store, and ends after it."""

    def __init__(self, store: ObjectStore) -> None:
        """Keep this store."""
        self._store = store
        metrics = store.inventory.metrics
        self._discarded = metrics.counter("drafts_discarded_total", "Unfinished objects that were removed.")

    async def run(self, child: Child) -> None:
        """Open once, whatever happens to this task later: a sweep would take the drafts that are being written."""
        store = self._store
        if not store.ready:
            await self._open()
        child.announce()
        with suppress(Closed):
            while True:
                await self._sweep(await store.discards.recv())
        # The committers ended before: nothing is under way any more.
        await store.write("close", _DROP_S, store.objects.close)

    async def _sweep(self, incoming: IncomingObject) -> None:
        store = self._store
        assert incoming.draft is not None
        try:
            await store.write("drop", _DROP_S, store.objects.drop, incoming.draft)
            self._discarded.value += 1
        except PenstockError as failed:
            # The next start sweeps it.
            store.log.warning("draft.left", reason=failed.detail)
        finally:
            incoming.swept()

    async def _open(self) -> None:
        store = self._store
        try:
            opened = await store.write("open", OPEN_S, store.objects.open)
        except DownstreamUnavailable as failed:
            cause = failed.__cause__
            reason = getattr(cause, "strerror", None) or "it cannot be used"
            raise DownstreamUnavailable(f"the objects in {store.options.where} cannot be opened: {reason}") from cause
        store.ledger.found(opened.objects, opened.size)
        self._discarded.value += opened.swept
        store.log.info("store.open", objects=opened.objects, bytes=opened.size, swept=opened.swept)
        store.ready = True
