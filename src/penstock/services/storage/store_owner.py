"""The Keeper: opens the engine, and removes the files of drafts that were given up."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import Closed, DownstreamUnavailable, PenstockError
from penstock.services.storage.engines.packs import StoreDamaged

if TYPE_CHECKING:
    from penstock.services.storage.incoming import IncomingObject
    from penstock.services.storage.store import ObjectStore

OPEN_S: Final = 600.0
_DROP_S: Final = 30.0


class StoreOwner:
    """Starts before everything that needs the store, and ends after it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        metrics = store.inventory.metrics
        self._gate = store.inventory.health.gate("objects")
        self._discarded = metrics.counter("drafts_discarded_total", "Unfinished objects that were removed.")

    async def run(self, child: Child) -> None:
        """Open once, whatever happens to this task later: a sweep would take the drafts that are being written."""
        store = self._store
        if not store.ready:
            await self._open()
        child.announce()
        if store.damage:
            await child.shutdown.wait()
            return
        with suppress(Closed):
            while True:
                await self._sweep(await store.discards.recv())
        # The committers ended before: nothing is under way any more.
        await store.pack("close", _DROP_S, store.engine.close)

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
            opened = await store.pack("open", OPEN_S, store.engine.open)
        except StoreDamaged as damage:
            self._stay_shut(damage)
            return
        except DownstreamUnavailable as failed:
            cause = failed.__cause__
            reason = getattr(cause, "strerror", None) or "it cannot be used"
            raise DownstreamUnavailable(f"the objects in {store.options.where} cannot be opened: {reason}") from cause
        store.ledger.found(opened.objects, opened.size)
        self._discarded.value += opened.swept
        torn_bytes = store.engine.torn_bytes
        store.log.info(
            "store.open", objects=opened.objects, bytes=opened.size, swept=opened.swept, torn_bytes=torn_bytes
        )
        store.ready = True
        self._gate.set(is_open=True)

    def _stay_shut(self, damage: StoreDamaged) -> None:
        """Refuse everything until somebody has looked at the packs.

        The service answers, and says why it is not ready.
        """
        self._store.damage = damage.detail
        self._gate.set(is_open=False, why=damage.detail)
        for fault in damage.faults:
            self._store.log.error("store.damaged", fault=fault)
