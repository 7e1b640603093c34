"""An object on its way out: two leaves at a time, each verified before a byte of it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from penstock.services.storage.manifest import LEAF_BYTES

if TYPE_CHECKING:
    from penstock.services.storage.engines.objects import FoundObject
    from penstock.services.storage.store import ObjectStore

LEAVES_A_VISIT: Final = 2


class ObjectReader:
    """One reader's place: it finds an object, then hands out a range of it in pieces of at most 64 KiB.

    Damage that is there is found before the first byte: a part of a few leaves is read at once, and for a larger one
    the object is held against its address first. Each leaf is held against the manifest again as it is read.
    """

    __slots__ = ("_at", "_end", "_found", "_held", "_held_at", "_kept", "_open", "_store")

    def __init__(self, store: ObjectStore) -> None:
        """Take a place, or refuse."""
        self._open = self._kept = False
        store.gets.acquire_or_busy()
        self._open = True
        self._store = store
        self._found: FoundObject | None = None
        self._at = self._end = 0
        # Verified bytes that are not handed out yet, and where they begin.
        self._held = b""
        self._held_at = 0

    async def find(self, address: str) -> FoundObject:
        """Find the object; NotFound, or Integrity when a look tells that it is damaged."""
        store = self._store
        store.check_ready()
        self._found = found = await store.look("find", store.engine.find, address)
        return found

    async def verify(self) -> None:
        """Hold a large object against its address, unless that was done and its file has not changed since."""
        store, found = self._store, self._object
        if not store.knows(found):
            await store.look("verify", store.objects.verify, found)
            store.remember(found)

    async def span(self, start: int, end: int) -> None:
        """Choose what to hand out, and read the first of it: what is wrong can still be the answer."""
        found = self._object
        self._at, self._end = start, end
        if found.data is not None:
            self._held, self._held_at = found.data, 0
            return
        if (end - 1) // LEAF_BYTES - start // LEAF_BYTES >= LEAVES_A_VISIT:
            await self.verify()
        await self._visit()

    async def _visit(self) -> None:
        store = self._store
        first = self._at // LEAF_BYTES
        leaves = min(LEAVES_A_VISIT, (self._end - 1) // LEAF_BYTES - first + 1)
        self._held = b""  # never more than two leaves, the old ones included
        self._held = await store.look("read", store.objects.read, self._object, first, leaves)
        self._held_at = first * LEAF_BYTES

    @property
    def _object(self) -> FoundObject:
        assert self._found is not None
        return self._found

    def whole(self) -> bytes | None:
        """Take everything asked for if it is in hand: the answer then needs no stream."""
        end = self._end - self._held_at
        if end > len(self._held):
            return None
        data = self._held[self._at - self._held_at : end]
        self._count(len(data))
        return data

    def _count(self, handed_bytes: int) -> None:
        self._at += handed_bytes
        self._store.bytes_out.value += handed_bytes

    def __aiter__(self) -> Self:
        """Hand out what is left."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece."""
        if self._at >= self._end:
            raise StopAsyncIteration
        if self._at >= self._held_at + len(self._held):
            await self._visit()
        start = self._at - self._held_at
        piece = self._held[start : min(start + LEAF_BYTES - start % LEAF_BYTES, self._end - self._held_at)]
        self._count(len(piece))
        return piece

    # --- the place

    def keep(self) -> Self:
        """Keep the place beyond the block it was taken in: whoever streams it closes it."""
        self._kept = True
        return self

    def __enter__(self) -> Self:
        """Hold the place for a block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Give the place back, unless it was kept for a stream."""
        if kind is not None or not self._kept:
            self.release()

    def release(self) -> None:
        """Give the place back; a second call does nothing."""
        if self._open:
            self._open = False
            self._held = b""
            self._store.gets.release()

    async def aclose(self) -> None:
        """End the reading; whoever streams it calls this."""
        self.release()

    def __del__(self) -> None:
        """Give the place back for a stream whose client left in the very step in which it was made."""
        self.release()
