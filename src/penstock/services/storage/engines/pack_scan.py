"""Reads a pack at the start, and tells what a crash may leave from what only damage explains. Changes nothing.

Groups are written one after the other, and the next one only after the one before is durable. So a crash leaves at
most one group that is not whole, and it is the last; nothing of it was answered for. It is told from damage like
this: no readable group follows it, it lies behind what the mark says is durable, and some sector of it was never
written. Anything else that cannot be read is damage: the names of objects that were answered for may be in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from penstock.services.storage import pack_format
from penstock.services.storage.pack_format import HEADER_BYTES, PackEntry, PackFormat, PackGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.services.storage.engines.disk import StorageFile

_SECTOR_BYTES: Final = 512
_GUESS_BYTES: Final = 4096


@dataclass(slots=True)
class PackScan:
    """What a pack holds. `end` is where the next group goes; a pack with a `fault` is not to be used."""

    pack: int
    format: PackFormat | None = None
    entries: list[PackEntry] = field(default_factory=list)
    groups: int = 0
    end: int = HEADER_BYTES
    # Up to here there are zeros behind the end.
    filled: int = 0
    sealed: bool = False
    torn_bytes: int = 0
    fault: str = ""


def scan_pack(file: StorageFile, pack: int, durable: int, *, last: bool) -> PackScan:
    """Read a pack of which so many bytes are known to be durable; every pack but the last must be sealed."""
    key = pack_format.read_header(pack, file.read(0, HEADER_BYTES))
    if key is None:
        return PackScan(pack, fault="its header is damaged")
    size = file.size()
    found = PackScan(pack, PackFormat(pack, key))
    seal = _seal(file, found.format, size)
    if seal is not None:
        found.entries, found.groups, found.end, found.sealed = seal.entries, seal.number, size, True
        return found
    groups = list(walk(file, found.format, HEADER_BYTES, size))
    _take(found, groups)
    if last and not file.read(found.end, size - found.end).strip(b"\0"):
        # Nothing but the zeros that were written ahead.
        found.filled, size = size, found.end
    if size - found.end == pack_format.seal_bytes(len(found.entries)):
        # The seal is damaged or torn. Everything it could name is known from the groups.
        found.end, found.sealed = size, True
    elif not last or found.end < durable:
        found.fault = _unreadable(found.end, size)
    else:
        _judge_tail(file, found, groups, size, durable)
    return found


def _take(found: PackScan, groups: list[PackGroup]) -> None:
    found.entries = [entry for group in groups for entry in group.entries]
    found.groups = len(groups)
    found.end = groups[-1].end if groups else HEADER_BYTES


def _unreadable(start: int, size: int) -> str:
    return f"it is cut at byte {size}" if start >= size else f"bytes {start} to {size} cannot be read"


def _judge_tail(file: StorageFile, found: PackScan, groups: list[PackGroup], size: int, durable: int) -> None:
    """Find out whether the end of the last pack is what a crash leaves; if so it does not count."""
    if found.end < size:
        rest = file.read(found.end, size - found.end)
        if not _is_torn(found.format, found.end, rest):
            found.fault = _unreadable(found.end, size)
    elif groups:
        start = groups[-2].end if len(groups) > 1 else HEADER_BYTES
        raw = file.read(start, size - start)
        whole = start < durable or all(_holds(entry, raw, start) for entry in groups[-1].entries)
        if not whole and _has_unwritten_sector(start, raw):
            _take(found, groups[:-1])
    found.torn_bytes = 0 if found.fault else size - found.end


def _is_torn(form: PackFormat | None, start: int, rest: bytes) -> bool:
    """Tell whether these bytes behind the last readable group can be one that a crash kept from being written whole."""
    assert form is not None
    if find_group(form, start + 1, rest[1:]) is not None:
        return False  # a later group was written, so this one was durable
    claimed = pack_format.claimed_end(start, rest)
    if claimed is None:
        return len(rest) < pack_format.HEAD_BYTES or _has_unwritten_sector(start, rest[: pack_format.HEAD_BYTES])
    return claimed > start + len(rest) or _has_unwritten_sector(start, rest[: claimed - start])


def _has_unwritten_sector(start: int, raw: bytes) -> bool:
    """Tell whether the part of some sector that is in these bytes is all zeros."""
    first = _SECTOR_BYTES - start % _SECTOR_BYTES
    cuts = [0, *range(first, len(raw), _SECTOR_BYTES), len(raw)]
    return any(not raw[at:end].strip(b"\0") for at, end in pairwise(cuts) if end > at)


def _holds(entry: PackEntry, raw: bytes, start: int) -> bool:
    at = entry.offset - start
    return blake3(raw[at : at + entry.size]).digest() == entry.digest


def _seal(file: StorageFile, form: PackFormat | None, size: int) -> PackGroup | None:
    assert form is not None
    tail = file.read(max(HEADER_BYTES, size - pack_format.START_BYTES), pack_format.START_BYTES)
    start = pack_format.seal_start(tail) if len(tail) == pack_format.START_BYTES else size
    group = read_group(file, form, start) if HEADER_BYTES <= start < size else None
    return group if group is not None and (group.kind, group.end) == (pack_format.SEAL, size) else None


def walk(file: StorageFile, form: PackFormat | None, start: int, size: int) -> Iterator[PackGroup]:
    """Read group after group, up to the first one that is not whole."""
    assert form is not None
    while start < size:
        group = read_group(file, form, start)
        if group is None or group.kind != pack_format.GROUP or group.end > size:
            return
        yield group
        start = group.end


def read_group(file: StorageFile, form: PackFormat, start: int) -> PackGroup | None:
    """Read the head and the table of the group that begins here."""
    raw = file.read(start, _GUESS_BYTES)
    needed = pack_format.head_bytes(raw)
    if needed is not None and needed > len(raw):
        raw = file.read(start, needed)
    return form.read(start, raw)


def find_group(form: PackFormat, start: int, rest: bytes) -> PackGroup | None:
    """Find a readable head anywhere in these bytes, which begin at `start`."""
    for kind in (pack_format.GROUP, pack_format.SEAL):
        at = rest.find(kind)
        while at >= 0:
            group = form.read(start + at, rest[at:])
            if group is not None:
                return group
            at = rest.find(kind, at + 1)
    return None
