"""How small objects lie together in a pack: bytes to values and back. Pure.

A pack is a file that only grows. It begins with a header, which holds a random key. Behind it lie groups, one for
each commit: a head, a table that names every object of the group and says where its bytes are, and then the bytes. A
pack that is full ends with a seal: the tables of all its groups once more, and the offset at which the seal begins,
so that a start reads one table a pack instead of walking over all groups.

Heads and tables carry a checksum that is keyed with the pack's key. Whoever puts objects does not know the key, so the
bytes of an object can never be taken for a head. The bytes themselves need no checksum: their digest is their name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from blake3 import blake3

KEY_BYTES: Final = 32
GROUP: Final = b"psgroup1"
SEAL: Final = b"psseal_1"
GROUP_OBJECTS_MAX: Final = 4096
# A pack that has reached either bound is sealed. A group is smaller than the first, so that offsets fit 27 bits.
PACK_BYTES_MAX: Final = 64 << 20
PACK_OBJECTS_MAX: Final = 1 << 16

_PACK: Final = b"pspack_1"
_MARK: Final = b"psmark_1"
_SUM_BYTES: Final = 16
_HEADER: Final = struct.Struct(">8sI32s")
_HEAD: Final = struct.Struct(">8sIIQII")
_ENTRY: Final = struct.Struct(">32sII")
_START: Final = struct.Struct(">Q")
_MARK_BODY: Final = struct.Struct(">8sIQ")
HEADER_BYTES: Final = _HEADER.size + _SUM_BYTES
HEAD_BYTES: Final = _HEAD.size
ENTRY_BYTES: Final = _ENTRY.size
START_BYTES: Final = _START.size
MARK_BYTES: Final = _MARK_BODY.size + _SUM_BYTES


class PackEntry(NamedTuple):
    """One object of a pack: its digest, where its bytes begin in the file, and how many they are."""

    digest: bytes
    offset: int
    size: int


class PackGroup(NamedTuple):
    """A head and its table, believed. `end` is where the next one begins."""

    kind: bytes
    number: int
    entries: list[PackEntry]
    end: int


class PackMark(NamedTuple):
    """Which pack is the last, and how much of it is known to be durable."""

    pack: int
    end: int


def write_header(pack: int, key: bytes) -> bytes:
    """Make the first bytes of a pack."""
    body = _HEADER.pack(_PACK, pack, key)
    return body + _plain_sum(body)


def read_header(pack: int, raw: bytes) -> bytes | None:
    """Return the pack's key; None unless this is the header of this very pack."""
    body = raw[: _HEADER.size]
    if len(raw) < HEADER_BYTES or raw[_HEADER.size : HEADER_BYTES] != _plain_sum(body):
        return None
    magic, number, key = _HEADER.unpack(body)
    return bytes(key) if (magic, number) == (_PACK, pack) else None


def write_mark(mark: PackMark) -> bytes:
    """Write a mark."""
    body = _MARK_BODY.pack(_MARK, *mark)
    return body + _plain_sum(body)


def read_mark(raw: bytes) -> PackMark | None:
    """Read a mark; None when it is damaged."""
    body = raw[: _MARK_BODY.size]
    if len(raw) < MARK_BYTES or raw[_MARK_BODY.size : MARK_BYTES] != _plain_sum(body):
        return None
    magic, pack, end = _MARK_BODY.unpack(body)
    return PackMark(pack, end) if magic == _MARK else None


class PackFormat:
    """Writes and reads the groups of one pack."""

    __slots__ = ("_key", "pack")

    def __init__(self, pack: int, key: bytes) -> None:
        """Take the pack's number and its key."""
        self.pack = pack
        self._key = key

    def group(self, number: int, offset: int, objects: list[tuple[bytes, bytes]]) -> tuple[bytes, list[PackEntry]]:
        """Write digests and bytes as the group that lies at this offset."""
        at = offset + HEAD_BYTES + len(objects) * _ENTRY.size + _SUM_BYTES
        entries = []
        for digest, data in objects:
            entries.append(PackEntry(digest, at, len(data)))
            at += len(data)
        payload_bytes = sum(len(data) for _, data in objects)
        head = self._head(GROUP, number, offset, payload_bytes, write_table(entries))
        return b"".join((head, *(data for _, data in objects))), entries

    def seal(self, number: int, offset: int, table: bytes) -> bytes:
        """Write what ends a pack: the table of everything that is in it, at this offset."""
        return self._head(SEAL, number, offset, _START.size, table) + _START.pack(offset)

    def _head(self, kind: bytes, number: int, offset: int, payload_bytes: int, table: bytes) -> bytes:
        body = _HEAD.pack(kind, self.pack, number, offset, len(table) // _ENTRY.size, payload_bytes) + table
        return body + self._sum(body)

    def _sum(self, body: bytes) -> bytes:
        return blake3(body, key=self._key).digest(_SUM_BYTES)

    def read(self, offset: int, raw: bytes) -> PackGroup | None:
        """Read the head and the table that lie at this offset; None unless every bit is as it was written."""
        size = head_bytes(raw)
        if size is None or len(raw) < size:
            return None
        body = raw[: size - _SUM_BYTES]
        kind, pack, number, at, _, payload_bytes = _HEAD.unpack_from(body)
        if (pack, at) != (self.pack, offset) or raw[size - _SUM_BYTES : size] != self._sum(body):
            return None
        return PackGroup(kind, number, read_table(body[HEAD_BYTES:]), offset + size + payload_bytes)


def head_bytes(raw: bytes) -> int | None:
    """Return how long a head is with its table and its checksum; None for what cannot be a head."""
    if len(raw) < HEAD_BYTES:
        return None
    kind, _, _, _, count, _ = _HEAD.unpack_from(raw)
    bound = {GROUP: GROUP_OBJECTS_MAX, SEAL: PACK_OBJECTS_MAX + GROUP_OBJECTS_MAX}.get(kind, -1)
    return HEAD_BYTES + count * _ENTRY.size + _SUM_BYTES if count <= bound else None


def claimed_end(offset: int, raw: bytes) -> int | None:
    """Return where the group at this offset would end if its head could be believed; None for what cannot be a head."""
    size = head_bytes(raw)
    return None if size is None else offset + size + int(_HEAD.unpack_from(raw)[-1])


def write_table(entries: Iterable[PackEntry]) -> bytes:
    """Write entries one behind the other."""
    return b"".join([_ENTRY.pack(*entry) for entry in entries])


def read_table(table: bytes) -> list[PackEntry]:
    """Read entries, believing them."""
    return [PackEntry(*entry) for entry in _ENTRY.iter_unpack(table)]


def table_of(raw: bytes) -> list[PackEntry]:
    """Read the entries of a head of which nothing is believed but its length."""
    return read_table(raw[HEAD_BYTES : len(raw) - _SUM_BYTES])


def group_bytes(payload_bytes: int, objects: int) -> int:
    """Return how long a group of so many objects with so many bytes is."""
    return HEAD_BYTES + objects * _ENTRY.size + _SUM_BYTES + payload_bytes


def seal_bytes(count: int) -> int:
    """Return how long the seal of so many objects is."""
    return HEAD_BYTES + count * _ENTRY.size + _SUM_BYTES + _START.size


def seal_start(raw: bytes) -> int:
    """Read where a seal begins from the last bytes of its pack."""
    (start,) = _START.unpack(raw[-_START.size :])
    return int(start)


def _plain_sum(body: bytes) -> bytes:
    return blake3(body, derive_key_context="penstock svc-storage pack v1").digest(_SUM_BYTES)
