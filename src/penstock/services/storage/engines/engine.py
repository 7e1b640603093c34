"""The engine: large objects in files of their own, small ones in packs, and the index that says where a small one is.

Calls block and are made by threads, except `find_now`. Only one thread at a time commits small objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from blake3 import blake3

from penstock.kernel.errors import Integrity, NotFound
from penstock.services.storage.engines.disk import FileStamp
from penstock.services.storage.engines.objects import FoundObject, ObjectFiles, ObjectsAtStart
from penstock.services.storage.engines.packs import Packs
from penstock.services.storage.index import KNOWN_BYTES, LOOSE, ObjectIndex, PackPlace
from penstock.services.storage.manifest import Manifest, absent, damaged
from penstock.wire.ids import format_address

if TYPE_CHECKING:
    from penstock.services.storage.engines.disk import StorageDisk

Outcome = Literal["new", "existed", "healed"]
# An object of a pack is read and held against its address by every call that finds it: nothing is remembered of it.
_NO_STAMP: Final = FileStamp(0, 0, 0, 0)


class ObjectEngine:
    """Everything a store keeps on its disk."""

    def __init__(self, disk: StorageDisk, *, packed_max: int) -> None:
        """Keep everything on this disk; no more small objects than this are packed."""
        self.index = ObjectIndex(packed_max)
        self.files = ObjectFiles(disk)
        self.packs = Packs(disk, self.index)
        self.torn_bytes = 0

    def open(self) -> ObjectsAtStart:
        """Read what is there and clear away what a crash left; StoreDamaged when packs cannot be read."""
        packed = self.packs.open()
        self.torn_bytes = packed.torn_bytes
        loose = self.files.open(self.index)
        return ObjectsAtStart(packed.objects + loose.objects, packed.size + loose.size, loose.swept)

    def close(self) -> None:
        """Note that nothing was under way at the end; only for an end in good order."""
        self.packs.close()
        self.files.close()

    # --- reading

    def find(self, address: str) -> FoundObject:
        """Find an object and believe its manifest; a small one is read and believed whole."""
        place = self.index.find(bytes.fromhex(address[3:]))
        if place is None or place == LOOSE:
            return self.files.find(address)
        try:
            data = self.packs.read(place)
        except FileNotFoundError:
            raise damaged("payload") from None
        return _believed(address, data)

    def find_now(self, address: str) -> FoundObject | None:
        """Do the same for a packed object if it needs no waiting for the disk; None says: ask `find`."""
        place = self.index.find(bytes.fromhex(address[3:]))
        if place is None or place == LOOSE:
            return None
        data = self.packs.read_now(place)
        return None if data is None else _believed(address, data)

    # --- writing

    def commit(self, objects: list[tuple[bytes, bytes]]) -> list[Outcome | OSError]:
        """Make small objects durable, digest and bytes each, with one sync; say of each what became of it."""
        outcomes: list[Outcome | OSError] = []
        fresh: dict[bytes, bytes] = {}
        for digest, data in objects:
            outcomes.append("existed" if digest in fresh else self._place(digest, data, fresh))
        if fresh:
            try:
                self.packs.append(list(fresh.items()))
            except OSError as failed:
                return [
                    failed if digest in fresh else each for each, (digest, _) in zip(outcomes, objects, strict=True)
                ]
        return outcomes

    def is_plain(self, objects: list[tuple[bytes, bytes]]) -> bool:
        """Tell whether committing these is one write and one sync: all new, and the pack has room for them."""
        index = self.index
        return (
            index.complete
            and not index.full
            and self.packs.has_room(sum(len(data) for _, data in objects), len(objects))
            and all(index.find(digest) is None for digest, _ in objects)
        )

    def _place(self, digest: bytes, data: bytes, fresh: dict[bytes, bytes]) -> Outcome | OSError:
        """Decide what to do with one object; what goes into a pack is added to `fresh`."""
        place = self.index.find(digest)
        try:
            if place is None and not self.index.complete and self.files.exists(format_address(digest)):
                place = LOOSE
            if place is not None and self._intact(digest, place):
                return "existed"
            if place == LOOSE or (place is None and self.index.full):
                # It is healed where it lies, or there is no room for it in the index.
                self.index.complete = self.index.complete and place == LOOSE
                self.files.store(format_address(digest), data, replace=place == LOOSE)
            else:
                fresh[digest] = data
        except OSError as failed:
            return failed
        return "new" if place is None else "healed"

    def _intact(self, digest: bytes, place: PackPlace) -> bool:
        try:
            if place == LOOSE:
                self.files.find(format_address(digest))
                return True
            return blake3(self.packs.read(place)).digest() == digest
        except (FileNotFoundError, Integrity, NotFound):
            return False


def _believed(address: str, data: bytes) -> FoundObject:
    """Hold the bytes that the index led to against the whole address."""
    found = FoundObject(Manifest(address, len(data)), _NO_STAMP, data)
    try:
        found.manifest.check(0, data)
    except Integrity:
        # The index knows the beginning of a digest only: an address with another end must not look like damage.
        if blake3(data).digest()[:KNOWN_BYTES] == bytes.fromhex(address[3:])[:KNOWN_BYTES]:
            raise absent() from None
        raise
    return found
