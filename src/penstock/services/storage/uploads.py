"""Objects that come in pieces over the contract: opened, appended to, finished, or ended when nobody goes on."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from blake3 import blake3

from penstock.contracts.storage import Stored, Upload
from penstock.kernel.errors import Busy, Conflict, NotFound, OverLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.services.storage.incoming import IncomingObject
    from penstock.services.storage.store import ObjectStore


class UnfinishedUpload:
    """One unfinished upload."""

    __slots__ = ("at", "incoming", "last", "taken", "used_at")

    def __init__(self, incoming: IncomingObject, now: float) -> None:
        self.incoming = incoming
        self.at = 0
        # Where the last piece began and what it was, to know it again.
        self.last: tuple[int, bytes] | None = None
        self.used_at = now
        # True while a call is at work on it.
        self.taken = False


class Uploads:
    """The unfinished uploads by their names, which nobody can guess."""

    def __init__(self, store: ObjectStore, monotonic: Callable[[], float]) -> None:
        """Bound how many there may be at once."""
        self._store = store
        self._monotonic = monotonic
        self._places = store.inventory.limiter("uploads", store.options.uploads_max)
        self._open: dict[str, UnfinishedUpload] = {}
        store.inventory.metrics.gauge("uploads_open", "Objects arriving in pieces.", read=lambda: len(self._open))

    def open(self) -> Upload:
        """Begin one; Busy when too many are unfinished."""
        upload_id = secrets.token_urlsafe(16)
        self._open[upload_id] = UnfinishedUpload(self._store.begin(self._places), self._monotonic())
        return Upload(upload_id, 0)

    async def append(self, upload_id: str, offset: int, data: bytes) -> Upload:
        """Add a piece at the end, or see that it is the piece that was added last."""
        upload = self._take(upload_id)
        try:
            if upload.last == (offset, digest := blake3(data).digest()):
                return Upload(upload_id, upload.at)
            if offset != upload.at:
                raise Conflict(f"The upload ends at {upload.at}.", reason="bad_offset", size=upload.at)
            await self._add(upload_id, upload, data)
            upload.at, upload.last = upload.at + len(data), (offset, digest)
            return Upload(upload_id, upload.at)
        finally:
            upload.taken = False

    async def _add(self, upload_id: str, upload: UnfinishedUpload, data: bytes) -> None:
        try:
            await upload.incoming.add(data)
        except OverLimit as refused:
            # A size or the quota was checked before anything was taken; a full disk was not.
            if refused.limit == "disk":
                self._end(upload_id)
            raise
        except BaseException:
            self._end(upload_id)  # how much of the piece was taken is not known
            raise

    async def finish(self, upload_id: str, expect: str | None) -> Stored:
        """Make the pieces an object; another address than the expected one leaves them as they are."""
        upload = self._take(upload_id)
        try:
            stored = await self._store.settle(upload.incoming, expect)
        except Conflict:
            upload.taken = False
            raise
        except Busy:
            upload.taken = False  # no committer had room: it may be tried again
            raise
        except BaseException:
            self._end(upload_id)
            raise
        self._end(upload_id)
        return stored

    async def abort(self, upload_id: str) -> None:
        """Throw the pieces away, and say so when they are gone; repeating it is nothing."""
        if upload_id in self._open:
            incoming = self._take(upload_id).incoming
            self._end(upload_id)
            await incoming.gone()

    def close(self) -> None:
        """End them all: the service has ended, and the next start sweeps their files."""
        for upload_id in list(self._open):
            self._end(upload_id)

    def end_idle(self, idle_s: float) -> int:
        """End the uploads nobody went on with for so long; return how many."""
        before = self._monotonic() - idle_s
        idle = [name for name, each in self._open.items() if not each.taken and each.used_at <= before]
        for name in idle:
            self._end(name)
        return len(idle)

    def _take(self, upload_id: str) -> UnfinishedUpload:
        if (upload := self._open.get(upload_id)) is None:
            raise NotFound("There is no such upload.")
        if upload.taken:
            raise Busy("Another call is at work on this upload.", limit="upload")
        upload.taken = True
        upload.used_at = self._monotonic()
        return upload

    def _end(self, upload_id: str) -> None:
        upload = self._open.pop(upload_id, None)
        if upload is not None:
            self._store.let_go(upload.incoming)
