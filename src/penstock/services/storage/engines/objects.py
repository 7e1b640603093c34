"""Objects as files of their own, visible only when they are whole and durable. Every call blocks; threads make them.

Objects of more than one leaf are kept like this, and so are small ones that an earlier version stored or that found
no room in the index.

An object is written under a temporary name, synced, renamed, and the directory synced. No call here leaves anything
half done that a later one could take for an object.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from blake3 import blake3

from penstock.services.storage import manifest
from penstock.services.storage.engines.disk import FileStamp, NotPlain, StorageDisk
from penstock.services.storage.index import LOOSE, ObjectIndex
from penstock.services.storage.manifest import LEAF_BYTES, Manifest, absent, damaged
from penstock.services.storage.temporary_object import TemporaryObject
from penstock.wire.ids import format_address

TEMPORARY: Final = "tmp"
# There while a process writes here; found at the start, it tells of a crash.
RUNNING: Final = "running"
SHARDS: Final = tuple(f"{number:02x}" for number in range(256))
_SLICE_BYTES: Final = 256 << 10
_NAME_CHARS: Final = 64


class ObjectsAtStart(NamedTuple):
    """What was there at the start."""

    objects: int
    size: int
    swept: int


class FoundObject(NamedTuple):
    """An object, its manifest believed; `data` is there for one of a single leaf, and is believed too."""

    manifest: Manifest
    stamp: FileStamp
    data: bytes | None = None

    @property
    def address(self) -> str:
        """Return its address."""
        return self.manifest.address

    @property
    def size(self) -> int:
        """Return how many bytes it has."""
        return self.manifest.size


class ObjectFiles:
    """Objects in 256 directories by the first byte of their digest. Calls for different objects may run at once."""

    def __init__(self, disk: StorageDisk) -> None:
        """Keep everything on this disk."""
        self._disk = disk
        self._names = count(1)

    # --- life

    def open(self, index: ObjectIndex) -> ObjectsAtStart:
        """Sweep what a crash left, count what is there, and note the small ones in the index."""
        self._disk.make_dir(TEMPORARY)
        self._outlive_a_crash()
        swept = self._sweep()
        counted = [self._count(shard, index) for shard in SHARDS]
        return ObjectsAtStart(sum(objects for objects, _ in counted), sum(size for _, size in counted), swept)

    def _count(self, shard: str, index: ObjectIndex) -> tuple[int, int]:
        """Count the objects of a directory and their bytes; one that no object was stored in is not there."""
        objects = size = 0
        with suppress(FileNotFoundError):
            for name, file_bytes in self._disk.files(shard):
                if len(name) == _NAME_CHARS and not _is_packed(name, file_bytes, index):
                    objects += 1
                    size += manifest.object_bytes(file_bytes) or file_bytes
        return objects, size

    def _outlive_a_crash(self) -> None:
        """Vouch for whatever can be seen: a crash may have come between a rename and the sync of its directory."""
        if self._exists_at(RUNNING):
            for shard in SHARDS:
                with suppress(FileNotFoundError):
                    self._disk.sync_dir(shard)
        else:
            self._disk.write(RUNNING, 0, b"", new=True, sync=True)
        self._disk.sync_dir("")

    def close(self) -> None:
        """Note that nothing was under way at the end; only for an end in good order."""
        with suppress(FileNotFoundError):
            self._disk.unlink(RUNNING)

    def _sweep(self) -> int:
        left = [name for name, _ in self._disk.files(TEMPORARY)]
        for name in left:
            self._disk.unlink(f"{TEMPORARY}/{name}")
        return len(left)

    # --- writing

    def draft(self) -> TemporaryObject:
        """Name a draft; its file is made by the first append."""
        return TemporaryObject(f"{TEMPORARY}/{next(self._names):x}")

    def append(self, draft: TemporaryObject, leaves: bytes) -> None:
        """Add whole leaves."""
        self._disk.write(draft.name, draft.size, leaves, new=not draft.size)
        draft.add(leaves)
        if draft.dropped:
            # Given up while its file was being made: whoever gave it up may have looked before it was there.
            self.drop(draft)

    def drop(self, draft: TemporaryObject) -> None:
        """Remove a draft; harmless when it is gone."""
        with suppress(FileNotFoundError):
            self._disk.unlink(draft.name)

    def store(self, address: str, data: bytes, *, replace: bool = False) -> bool:
        """Make an object of at most one leaf; False, and nothing done, when one is there and not to be replaced."""
        if not replace and self.exists(address):
            return False
        draft = self.draft()
        try:
            self._disk.write(draft.name, 0, data, new=True, sync=True)
            self._show(draft, address)
        except OSError:
            self.drop(draft)
            raise
        return True

    def publish(self, draft: TemporaryObject, tail: bytes, made: Manifest, *, replace: bool = False) -> bool:
        """Make a draft an object; False, and nothing done, when one is there and not to be replaced."""
        if not replace and self.exists(made.address):
            return False
        self._disk.write(draft.name, draft.size, tail + made.encode(), sync=True)
        self._show(draft, made.address)
        return True

    def _show(self, draft: TemporaryObject, address: str) -> None:
        """Give a synced draft its place; it is an object only when that is durable too."""
        path = _path(address)
        try:
            self._disk.rename(draft.name, path)
        except FileNotFoundError:
            # The first object of its directory.
            self._disk.make_dir(path[:2])
            self._disk.sync_dir("")
            self._disk.rename(draft.name, path)
        try:
            self._disk.sync_dir(path[:2])
        except OSError:
            # Seen, it would be taken for stored by the next put. Nothing vouches for it: let it go.
            with suppress(OSError):
                self._disk.unlink(path)
            raise

    def exists(self, address: str) -> bool:
        """Tell whether something has the name of this object."""
        return self._exists_at(_path(address))

    def _exists_at(self, path: str) -> bool:
        try:
            self._disk.stamp(path)
        except FileNotFoundError:
            return False
        except NotPlain:
            return True  # something is, and the look that follows finds it damaged
        return True

    # --- reading

    def find(self, address: str) -> FoundObject:
        """Find an object and believe its manifest; one of a single leaf is read and believed whole."""
        path = _path(address)
        try:
            stamp = self._disk.stamp(path)
            size = manifest.object_bytes(stamp.size)
            if size is None:
                raise damaged("manifest")
            if size <= LEAF_BYTES:
                return self._small(address, stamp)
            written = self._disk.read(path, size, stamp.size - size)
            return FoundObject(manifest.decode(address, size, written), stamp)
        except FileNotFoundError:
            raise absent() from None
        except NotPlain:
            raise damaged("payload") from None

    def _small(self, address: str, stamp: FileStamp) -> FoundObject:
        data = self._disk.read(_path(address), 0, LEAF_BYTES)
        found = FoundObject(Manifest(address, len(data)), stamp, data)
        found.manifest.check(0, data)
        return found

    def verify(self, found: FoundObject) -> None:
        """Read a large object whole and hold it against its address."""
        whole, at = blake3(), 0
        while at < found.size:
            piece = self._disk.read(_path(found.address), at, min(_SLICE_BYTES, found.size - at))
            if not piece:
                raise damaged("payload")
            whole.update(piece)
            at += len(piece)
        if format_address(whole.digest()) != found.address:
            raise damaged("payload")

    def read(self, found: FoundObject, first: int, leaves: int) -> bytes:
        """Read some leaves of a large object, each held against the manifest."""
        start = first * LEAF_BYTES
        size = min(leaves * LEAF_BYTES, found.size - start)
        data = self._disk.read(_path(found.address), start, size)
        if len(data) != size:
            raise damaged("payload")
        found.manifest.check(first, data)
        return data


def _is_packed(name: str, file_bytes: int, index: ObjectIndex) -> bool:
    """Note a small object in the index; True when a pack holds it too, and it was counted there."""
    if file_bytes > LEAF_BYTES:
        return False
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        return False
    before = index.find(digest)
    if before is None:
        index.put(digest, LOOSE)
    return before is not None


def _path(address: str) -> str:
    return f"{address[3:5]}/{address[3:]}"
