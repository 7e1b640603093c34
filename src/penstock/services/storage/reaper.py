"""The Reaper: ends uploads that nobody goes on with, so that they hold no room for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child

if TYPE_CHECKING:
    from penstock.services.storage.store import ObjectStore
    from penstock.services.storage.uploads import Uploads

_LOOK_S: Final = 5.0


class Reaper:
    """Looks every few seconds."""

    def __init__(self, store: ObjectStore, uploads: Uploads) -> None:
        self._store = store
        self._uploads = uploads
        self._ended = store.inventory.metrics.counter("uploads_expired_total", "Uploads ended because nobody went on.")

    async def run(self, child: Child) -> None:
        """Look until the service drains."""
        idle_s = self._store.options.upload_idle_s
        while not await child.shutdown.sleep(min(_LOOK_S, idle_s)):
            self._ended.value += self._uploads.end_idle(idle_s)
        # Nobody can go on with them: what waits between two pieces goes while the keeper still sweeps.
        self._uploads.end_idle(0.0)
