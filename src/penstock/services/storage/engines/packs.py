"""Packs: files in which small objects lie one behind the other. Every call blocks, except those that say so.

One thread appends. It writes the objects of a commit as one group at the end of the last pack and makes it durable
with one sync; only then does the index name them. The file is filled with zeros a little ahead of its groups: a sync
of bytes whose room is there already does not change the file's size and costs half. A pack that is full is sealed and
never written again. A file beside the packs, the mark, says which pack is the last and how much of it is durable: it
is synced when a pack is made and at the end in good order, and only written in between, so that after a kill it is
exact and after a power loss it says too little, never too much. With it a pack that was cut or is gone is noticed at
the start.
"""

from __future__ import annotations

import errno
import secrets
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.kernel.errors import Integrity
from penstock.services.storage import pack_format
from penstock.services.storage.engines.disk import NotPlain
from penstock.services.storage.engines.pack_scan import PackScan, scan_pack
from penstock.services.storage.index import PACKS_MAX, ObjectIndex, PackPlace
from penstock.services.storage.pack_format import PackFormat, PackMark

if TYPE_CHECKING:
    from penstock.services.storage.engines.disk import StorageDisk, StorageFile

PACKS: Final = "packs"
MARK: Final = "packs.mark"
# So many packs stay open for reading.
_OPEN_MAX: Final = 64
_NAME_CHARS: Final = 8
# So far ahead of the groups the last pack is filled with zeros.
_AHEAD_BYTES: Final = 1 << 20


class StoreDamaged(Integrity):
    """Packs cannot be read, and objects that were answered for may be lost with them."""

    def __init__(self, faults: list[str]) -> None:
        """Carry every fault that was found."""
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{faults[0]}{more}; see `penstock storage check`", reason="packs")
        self.faults = faults


class PackedAtStart(NamedTuple):
    """What the packs held at the start."""

    objects: int
    size: int
    torn_bytes: int


class ActivePack:
    """The pack that grows."""

    __slots__ = ("end", "file", "filled", "format", "groups", "table")

    def __init__(self, file: StorageFile, form: PackFormat, found: PackScan) -> None:
        """Go on where the pack ends."""
        self.file = file
        self.format = form
        self.end = found.end
        # Up to here there are zeros behind the end.
        self.filled = max(found.end, found.filled)
        self.groups = found.groups
        # What the seal will say.
        self.table = bytearray(pack_format.write_table(found.entries))

    @property
    def full(self) -> bool:
        """Tell whether it is time for the seal."""
        objects = len(self.table) // pack_format.ENTRY_BYTES
        return self.end >= pack_format.PACK_BYTES_MAX or objects >= pack_format.PACK_OBJECTS_MAX


class Packs:
    """All packs of a store. `append`, `open` and `close` are called by one thread at a time; reads by anybody."""

    def __init__(self, disk: StorageDisk, index: ObjectIndex, *, ahead_bytes: int = _AHEAD_BYTES) -> None:
        """Keep packs on this disk, and note in the index what they hold."""
        self._ahead_bytes = ahead_bytes
        self._disk = disk
        self._index = index
        self._last = 0
        self._active: ActivePack | None = None
        self._mark: StorageFile | None = None
        self._broken = ""
        # Not a method of this object: it would keep itself, and its files, alive.
        self._reading = lru_cache(maxsize=_OPEN_MAX)(lambda pack: disk.open(path_of(pack)))

    # --- life

    def open(self) -> PackedAtStart:
        """Read what is there, and cut off what a crash left.

        StoreDamaged, and nothing changed, if there is more wrong.
        """
        self._disk.make_dir(PACKS)
        mark, found, faults = read_packs(self._disk)
        if faults:
            raise StoreDamaged(faults)
        size = torn_bytes = 0
        for scan in found:
            size += self._note(scan)
            torn_bytes += scan.torn_bytes
        self._last = found[-1].pack if found else 0
        if found and not found[-1].sealed:
            self._go_on(found[-1])
        self._remove_unborn()
        if mark is not None:
            self._mark = self._disk.open(MARK)
        if found and (mark is None or mark.pack < self._last):
            self._begin_mark(self._last)  # a crash came between the making of the pack and this
        return PackedAtStart(self._index.count, size, torn_bytes)

    def _note(self, scan: PackScan) -> int:
        """Name the objects of a pack in the index; return how many bytes are new. The last copy of an object counts."""
        size = 0
        for digest, offset, object_bytes in scan.entries:
            before = self._index.put(digest, PackPlace(scan.pack, offset, object_bytes))
            size += object_bytes if before is None else 0
        return size

    def _go_on(self, found: PackScan) -> None:
        assert found.format is not None
        file = self._disk.open(path_of(found.pack))
        if found.torn_bytes:
            file.truncate(found.end)
            found.filled = found.end
        # A kill may have come between a write and its sync: what can be seen must be durable before it is vouched for.
        file.sync()
        self._active = ActivePack(file, found.format, found)

    def _remove_unborn(self) -> None:
        """Remove a pack whose making a crash cut short; nothing was ever written to it."""
        with suppress(FileNotFoundError):
            self._disk.unlink(path_of(self._last + 1))

    def close(self) -> None:
        """Make the mark durable, so that the next start can hold the last pack against it.

        Only for an end in good order.
        """
        if self._mark is not None and self._active is not None:
            self._write_mark(self._active.format.pack, self._active.end, self._mark)
            self._mark.sync()
        self._active = self._mark = None
        self._reading.cache_clear()

    # --- writing

    def append(self, objects: list[tuple[bytes, bytes]]) -> None:
        """Make these objects durable, digest and bytes each, and name them in the index; or change nothing."""
        if self._broken:
            raise OSError(errno.EIO, self._broken)
        active = self._active
        if active is None or active.full:
            active = self._next_pack()
        group, entries = active.format.group(active.groups, active.end, objects)
        try:
            self._write(active, group)
            active.file.sync()
            if not active.file.has_name():
                raise OSError(errno.ESTALE, "the pack was removed")
        except OSError:
            self._take_back(active)
            raise
        active.end += len(group)
        active.groups += 1
        active.table += pack_format.write_table(entries)
        self._note_mark(active)
        pack = active.format.pack
        for digest, offset, size in entries:
            self._index.put(digest, PackPlace(pack, offset, size))

    def has_room(self, payload_bytes: int, objects: int) -> bool:
        """Tell whether a group of this size fits into the zeros that are there.

        It then takes one write and one sync.
        """
        active = self._active
        if active is None or active.full:
            return False
        return active.end + pack_format.group_bytes(payload_bytes, objects) <= active.filled

    def _write(self, active: ActivePack, group: bytes) -> None:
        """Write a group, and zeros behind it when it comes to the end of those that are there."""
        end = active.end + len(group)
        if end > active.filled:
            try:
                active.file.write(active.end, group + bytes(self._ahead_bytes))
            except OSError:
                # The disk may be nearly full: give back what was taken, and try without the zeros.
                active.file.truncate(active.end)
                active.filled = active.end
            else:
                active.filled = end + self._ahead_bytes
                return
        active.file.write(active.end, group)
        active.filled = max(active.filled, end)

    def _take_back(self, active: ActivePack) -> None:
        """Remove what was not made durable: the next start must not take it for an object that is."""
        try:
            active.file.truncate(active.end)
            active.filled = active.end
        except OSError as failed:
            self._broken = f"pack {active.format.pack} cannot be written: {failed.strerror}"

    def _next_pack(self) -> ActivePack:
        """Seal the pack that is full, and begin the next."""
        if self._active is not None:
            self._seal(self._active)
            self._active = None
        pack = self._last + 1
        if pack > PACKS_MAX:
            raise OSError(errno.EFBIG, "there are too many packs")
        self._remove_unborn()  # left by an attempt that failed
        form = PackFormat(pack, key := secrets.token_bytes(pack_format.KEY_BYTES))
        file = self._disk.open(path_of(pack), new=True)
        file.write(0, pack_format.write_header(pack, key))
        file.sync()
        self._disk.sync_dir(PACKS)
        self._begin_mark(pack)
        self._last = pack
        self._active = ActivePack(file, form, PackScan(pack, form))
        return self._active

    def _seal(self, active: ActivePack) -> None:
        seal = active.format.seal(active.groups, active.end, bytes(active.table))
        try:
            active.file.truncate(active.end)
            active.filled = active.end
            active.file.write(active.end, seal)
            active.file.sync()
        except OSError:
            self._take_back(active)
            raise

    def _begin_mark(self, pack: int) -> None:
        """Say durably that there is a further pack: from now on it cannot vanish unnoticed."""
        mark = self._mark
        if mark is None:
            with suppress(FileNotFoundError):
                self._disk.unlink(MARK)
            mark = self._disk.open(MARK, new=True)
        self._write_mark(pack, pack_format.HEADER_BYTES, mark)
        mark.sync()
        self._disk.sync_dir("")
        self._mark = mark

    def _note_mark(self, active: ActivePack) -> None:
        if self._mark is not None:
            with suppress(OSError):  # it then says too little, as after a power loss
                self._write_mark(active.format.pack, active.end, self._mark)

    def _write_mark(self, pack: int, end: int, mark: StorageFile) -> None:
        mark.write(0, pack_format.write_mark(PackMark(pack, end)))

    # --- reading

    def read(self, place: PackPlace) -> bytes:
        """Read an object's bytes, whatever they are: the caller holds them against their address."""
        return self._reading(place.pack).read(place.offset, place.size)

    def read_now(self, place: PackPlace) -> bytes | None:
        """Do the same without waiting for the disk; None when that is not possible."""
        try:
            return self._reading(place.pack).read_now(place.offset, place.size)
        except OSError:
            return None


def path_of(pack: int) -> str:
    """Name the file of a pack."""
    return f"{PACKS}/{pack:08x}"


def read_packs(disk: StorageDisk) -> tuple[PackMark | None, list[PackScan], list[str]]:
    """Read the mark and every pack; the faults are what keeps a store from being opened."""
    mark, numbers = _read_mark(disk), _numbers(disk)
    last = max(numbers, default=0)
    if mark is not None and last == mark.pack + 1 and _unborn(disk, last):
        last -= 1
    faults = [
        f"pack {pack} is missing" for pack in range(1, max(last, mark.pack if mark else 0) + 1) if pack not in numbers
    ]
    found = [_scan(disk, pack, mark, last=pack == last) for pack in sorted(numbers) if pack <= last]
    if mark is None and last == 1 and _unborn(disk, 1):
        return None, [], []
    if mark is None and any(scan.entries or scan.fault for scan in found):
        faults.append(f"{MARK} is missing or damaged")
    faults += [f"pack {scan.pack}: {scan.fault}" for scan in found if scan.fault]
    return mark, found, faults


def _numbers(disk: StorageDisk) -> set[int]:
    try:
        names = [name for name, _ in disk.files(PACKS)]
    except FileNotFoundError:
        return set()
    return {int(name, 16) for name in names if len(name) == _NAME_CHARS and not set(name) - set("0123456789abcdef")}


def _read_mark(disk: StorageDisk) -> PackMark | None:
    try:
        return pack_format.read_mark(disk.read(MARK, 0, pack_format.MARK_BYTES))
    except (FileNotFoundError, NotPlain):
        return None


def _unborn(disk: StorageDisk, pack: int) -> bool:
    """Tell whether a crash came while this pack was made.

    It has no header, and nothing lies behind where it would be.
    """
    file = disk.open(path_of(pack))
    return file.size() <= pack_format.HEADER_BYTES and pack_format.read_header(pack, file.read(0, file.size())) is None


def _scan(disk: StorageDisk, pack: int, mark: PackMark | None, *, last: bool) -> PackScan:
    durable = mark.end if mark is not None and mark.pack == pack else 0
    try:
        return scan_pack(disk.open(path_of(pack)), pack, durable, last=last)
    except NotPlain:
        return PackScan(pack, fault="it is not a plain file")
