"""Looks into the files of a store, and makes new packs of what can still be read. For a node that is not running.

A repair reads a damaged pack from its first byte to its last, believes no head and no table, and keeps every object
whose bytes have the digest that names them. It writes them as a new pack in the place of the damaged one, which is
put aside and never changed. A pack that is gone is replaced by an empty one, so that the loss is accepted by a person
and not by a start.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from blake3 import blake3

from penstock.kernel.errors import Integrity, NotFound
from penstock.services.storage import pack_format
from penstock.services.storage.engines.disk import RealStorageDisk, StorageFile
from penstock.services.storage.engines.objects import SHARDS, ObjectFiles
from penstock.services.storage.engines.pack_scan import PackScan
from penstock.services.storage.engines.packs import MARK, PACKS, path_of, read_packs
from penstock.services.storage.pack_format import PackEntry, PackFormat, PackMark
from penstock.wire.ids import format_address

_GROUP_OBJECTS: Final = 256


@dataclass(slots=True)
class RepairedStore:
    """What a repair did."""

    # Packs that were made anew of what could be read, and packs that were gone.
    rebuilt: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    saved: int = 0
    # Addresses that a table names and whose bytes are not there any more.
    lost: list[str] = field(default_factory=list)
    kept_in: str = ""


def look(directory: Path) -> list[str]:
    """Say what is wrong with the files, reading all of them; change nothing."""
    if not directory.exists():
        return [f"{directory} does not exist"]
    disk = RealStorageDisk(directory)
    _, scans, faults = read_packs(disk)
    return [*faults, *_damaged_in_packs(disk, scans), *_damaged_files(disk)]


def _damaged_in_packs(disk: RealStorageDisk, scans: list[PackScan]) -> Iterator[str]:
    latest = {entry.digest: (scan.pack, entry) for scan in scans for entry in scan.entries}
    for digest, (pack, entry) in latest.items():
        data = disk.read(path_of(pack), entry.offset, entry.size)
        if blake3(data).digest() != digest:
            yield f"pack {pack}: the bytes of {format_address(digest)} are damaged"


def _damaged_files(disk: RealStorageDisk) -> Iterator[str]:
    files = ObjectFiles(disk)
    for address in _addresses(disk):
        try:
            found = files.find(address)
            if found.data is None:
                files.verify(found)
        except (Integrity, NotFound):
            yield f"the file of {address} is damaged"


def _addresses(disk: RealStorageDisk) -> Iterator[str]:
    for shard in SHARDS:
        try:
            names = [name for name, _ in disk.files(shard)]
        except FileNotFoundError:
            continue
        for name in names:
            if len(name) == pack_format.KEY_BYTES * 2 and not set(name) - set("0123456789abcdef"):
                yield f"b3:{name}"


def repair(directory: Path) -> RepairedStore:
    """Replace packs that cannot be read by new ones with what is left of them; one that can be read is not touched."""
    disk, report = RealStorageDisk(directory), RepairedStore()
    mark, scans, faults = read_packs(disk)
    if not faults:
        return report
    last = max([mark.pack if mark else 0, *(scan.pack for scan in scans)])
    aside = _aside(directory)
    report.kept_in = str(aside)
    readable = {scan.pack: scan for scan in scans if not scan.fault}
    disk.make_dir(PACKS)
    for pack in range(1, last + 1):
        if pack not in readable:
            _rebuild(disk, directory, pack, aside, report)
    if last:
        end = readable[last].end if last in readable else disk.stamp(path_of(last)).size
        _write_mark(disk, directory, aside, PackMark(last, end))
    return report


def _aside(directory: Path) -> Path:
    number = 1
    while (aside := directory / f"damaged-{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    return aside


def _rebuild(disk: RealStorageDisk, directory: Path, pack: int, aside: Path, report: RepairedStore) -> None:
    path = directory / path_of(pack)
    objects: dict[bytes, bytes] = {}
    if path.exists() or path.is_symlink():
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        objects, lost = salvage(content)
        report.rebuilt.append(pack)
        report.saved += len(objects)
        report.lost += [format_address(digest) for digest in lost]
    else:
        report.missing.append(pack)
    fresh = f"{path_of(pack)}.repaired"
    (directory / fresh).unlink(missing_ok=True)
    write_pack(disk.open(fresh, new=True), pack, objects)
    if path.exists() or path.is_symlink():
        path.rename(aside / path.name)
    disk.rename(fresh, path_of(pack))
    disk.sync_dir(PACKS)


def _write_mark(disk: RealStorageDisk, directory: Path, aside: Path, mark: PackMark) -> None:
    path = directory / MARK
    if path.exists() or path.is_symlink():
        path.rename(aside / MARK)
    disk.write(MARK, 0, pack_format.write_mark(mark), new=True, sync=True)
    disk.sync_dir("")


def salvage(content: bytes) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Find every object in the bytes of a pack; also return the digests whose bytes are not there any more."""
    objects: dict[bytes, bytes] = {}
    named: dict[bytes, None] = {}
    for entry in _tables(content):
        data = content[entry.offset : entry.offset + entry.size]
        digest = blake3(data).digest()
        if digest == entry.digest:
            objects[digest] = data
        else:
            named[entry.digest] = None
    return objects, [digest for digest in named if digest not in objects]


def _tables(content: bytes) -> Iterator[PackEntry]:
    """Read whatever looks like a table."""
    for kind in (pack_format.GROUP, pack_format.SEAL):
        at = content.find(kind)
        while at >= 0:
            size = pack_format.head_bytes(content[at : at + pack_format.HEAD_BYTES])
            if size is not None and at + size <= len(content):
                yield from pack_format.table_of(content[at : at + size])
            at = content.find(kind, at + 1)


def write_pack(file: StorageFile, pack: int, objects: dict[bytes, bytes]) -> None:
    """Write a whole pack with these objects, sealed and synced."""
    form = PackFormat(pack, key := secrets.token_bytes(pack_format.KEY_BYTES))
    file.write(0, pack_format.write_header(pack, key))
    end, number, table, left = pack_format.HEADER_BYTES, 0, b"", list(objects.items())
    while left:
        group, entries = form.group(number, end, left[:_GROUP_OBJECTS])
        file.write(end, group)
        end, number, left = end + len(group), number + 1, left[_GROUP_OBJECTS:]
        table += pack_format.write_table(entries)
    file.write(end, form.seal(number, end, table))
    file.sync()
