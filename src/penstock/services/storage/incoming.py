"""An object on its way in.

What it holds of the quota, of the places and of the disk, and gives back whatever happens.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.contracts.storage import Stored
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Conflict, OverLimit
from penstock.kernel.worker import Job
from penstock.services.storage.manifest import LEAF_BYTES, Manifest
from penstock.wire.ids import address_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from penstock.kernel.limiter import Limiter
    from penstock.services.storage.packed_put import PackedPut
    from penstock.services.storage.store import ObjectStore
    from penstock.services.storage.temporary_object import TemporaryObject

    CommitJob: TypeAlias = "Job[IncomingObject, Stored]"

APPEND_S: Final = 30.0
_HELD_BYTES_MAX: Final = 2 * LEAF_BYTES


class IncomingObject:
    """Bytes of one object, in order, two leaves in memory at most: a small object costs one visit to the disk."""

    __slots__ = ("_gone", "_places", "_store", "closed", "draft", "job", "made", "reserved_bytes", "size", "tail")

    def __init__(self, store: ObjectStore, places: Limiter, size_hint: int = 0) -> None:
        """Take a place and the room that was announced, or refuse."""
        self._store = store
        self._places = places
        self.reserved_bytes = 0
        places.acquire_or_busy()
        try:
            self._make_room(size_hint)
        except OverLimit:
            places.release()
            raise
        self.size = 0
        self.tail = bytearray()
        self.draft: TemporaryObject | None = None
        # What the bytes are, once they are whole.
        self.made: Manifest | None = None
        # The commit, once it was asked for; a committer that took it ends this object too.
        self.job: CommitJob | None = None
        self.closed = False
        self._gone: asyncio.Future[None] | None = None

    async def add(self, piece: bytes) -> None:
        """Take further bytes; two leaves at a time go to the disk."""
        self._make_room(self.size + len(piece))
        self.tail += piece
        self.size += len(piece)
        if len(self.tail) > _HELD_BYTES_MAX:
            await self._flush()

    async def _flush(self) -> None:
        """Write what is whole; at least one byte stays, because what ends the object is known only at its end."""
        full = (len(self.tail) - 1) // LEAF_BYTES * LEAF_BYTES
        leaves = bytes(memoryview(self.tail)[:full])
        if self.draft is None:
            self.draft = self._store.objects.draft()
        await self._store.write("append", APPEND_S, self._store.objects.append, self.draft, leaves)
        del self.tail[:full]

    def _make_room(self, size: int) -> None:
        self._store.check_size(size)
        if size > self.reserved_bytes:
            self._store.ledger.reserve(size - self.reserved_bytes)
            self.reserved_bytes = size

    async def finish(self, expect: str | None) -> Manifest:
        """Say what the bytes are; Conflict, and nothing lost, when that is not what was expected."""
        if len(self.tail) > LEAF_BYTES:
            await self._flush()
        tail, draft = bytes(self.tail), self.draft
        made = Manifest(address_of(tail), self.size) if draft is None else draft.manifest(tail)
        check_expected(made.address, expect)
        self.made = made
        return made

    def publish(self, *, replace: bool) -> bool:
        """Make its draft an object, on a thread; False when one is there and not to be replaced."""
        assert self.made is not None
        assert self.draft is not None
        return self._store.objects.publish(self.draft, bytes(self.tail), self.made, replace=replace)

    def hand_over(self, put: PackedPut) -> None:
        """Leave the rest to the one who stores it: it now holds the place and what was reserved."""
        put.hold(self._store.ledger, self._places, self.reserved_bytes)
        self.reserved_bytes = 0
        self.closed = True

    def stored(self) -> None:
        """Turn what was reserved into what is stored; the draft's name is gone."""
        self._store.ledger.stored(self.size)
        self.reserved_bytes -= self.size
        self.draft = None

    def replaced(self) -> None:
        """Note that the object took the place of a damaged one, which was counted."""
        self.draft = None

    def close(self) -> None:
        """Give back what is held; the file of a draft goes with the keeper, and its place only then."""
        if self.closed:
            return
        self.closed = True
        self._store.ledger.release(self.reserved_bytes)
        self.reserved_bytes = 0
        if self.draft is None or not self._store.discard(self):
            self._places.release()

    def swept(self) -> None:
        """Note that the draft's file is gone."""
        self.draft = None
        self._places.release()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def gone(self) -> None:
        """Wait until nothing is left of it, after `close`."""
        if self.draft is not None:
            self._gone = asyncio.get_running_loop().create_future()
            async with timeout("discard", APPEND_S):
                await self._gone


def check_expected(address: str, expect: str | None) -> None:
    """Refuse bytes that are not what was expected."""
    if expect is not None and expect != address:
        raise Conflict("The bytes have another address.", reason="digest_mismatch", address=address)
