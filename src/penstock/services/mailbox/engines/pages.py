"""SQLite's file format, read without SQLite: pages of a file and its log, and the records on them. For repairs.

Nothing here follows a tree: a page is looked at for what it holds, so that a damaged one costs what is on it and no
more. What a record is worth is for its own checksum to say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.services.mailbox.engines.wal import FRAME, HEADER, checksum

TABLE_LEAF: Final = 13
INDEX_LEAF: Final = 10
INDEX_INTERIOR: Final = 2
_FIRST_PAGE_HEAD: Final = 100
_OVERFLOW_PAGES_MAX: Final = 1 << 18
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class PageVersion(NamedTuple):
    """One copy of a page; a copy whose log frame does not match its checksum may be damaged anywhere."""

    content: bytes
    good: bool


class PageCell(NamedTuple):
    """One record: its rowid (0 in an index), and its columns; None where they cannot be read."""

    rowid: int
    columns: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class _Frame:
    page: int
    at: int
    good: bool


class DatabasePages:
    """The pages of a database file under those of its log."""

    def __init__(self, file: bytes, log: bytes) -> None:
        """Take the bytes of both; the log may be empty."""
        self._file = file
        self._log = log
        self.page_bytes = _page_bytes(file, log)
        self._frames: dict[int, list[_Frame]] = {}
        self.damaged_frames: list[int] = []
        self.count = len(file) // self.page_bytes
        self._read_log()

    # --- the log

    def _read_log(self) -> None:
        """Find the copies of pages that the log holds, up to its last commit."""
        size = FRAME.size + self.page_bytes
        salts = _salts(self._log)
        frames = [(at, *FRAME.unpack_from(self._log, at)) for at in range(HEADER.size, len(self._log) - size + 1, size)]
        commits = [place for place, frame in enumerate(frames) if frame[2] and frame[3:5] == salts]
        big = self._log[3] & 1 if len(self._log) > 3 else 0
        running: tuple[int, int] = struct.unpack_from(">II", self._log, 24) if commits else (0, 0)
        for number, (at, page, _, *found) in enumerate(frames[: commits[-1] + 1] if commits else []):
            # Each frame is judged from the sum its forerunner claims: one that is bad does not spoil the rest.
            running = checksum(self._log[at : at + 8], big, running)
            running = checksum(self._log[at + FRAME.size : at + size], big, running)
            good = running == tuple(found[2:]) and tuple(found[:2]) == salts
            running = (found[2], found[3])
            if not good:
                self.damaged_frames.append(number)
            self._frames.setdefault(page, []).append(_Frame(page, at + FRAME.size, good))
        if commits:
            self.count = max(self.count, frames[commits[-1]][2])

    def versions(self, page: int) -> list[PageVersion]:
        """Return every copy of a page, the newest first; the one in the file is the last."""
        found = [
            PageVersion(self._log[f.at : f.at + self.page_bytes], f.good) for f in reversed(self._frames.get(page, []))
        ]
        start = (page - 1) * self.page_bytes
        if 0 <= start < len(self._file):
            found.append(PageVersion(self._file[start : start + self.page_bytes], good=True))
        return found

    def newest(self, page: int) -> bytes:
        """Return the newest copy of a page, or nothing."""
        found = self.versions(page)
        return found[0].content if found else b""

    def free(self) -> set[int]:
        """Name the pages that are in no table: what lies on them was deleted."""
        free: set[int] = set()
        head = self.newest(1)
        trunk = int.from_bytes(head[32:36], "big") if len(head) >= 36 else 0
        while 0 < trunk <= self.count and trunk not in free:
            free.add(trunk)
            content = self.newest(trunk)
            count = min(int.from_bytes(content[4:8], "big"), len(content) // 4 - 2)
            free.update(struct.unpack_from(f">{count}I", content, 8))
            trunk = int.from_bytes(content[:4], "big")
        return free

    # --- records

    def cells(self, page: int, content: bytes) -> Iterator[PageCell]:
        """Read the records of a leaf page, or of any page of an index."""
        head = _FIRST_PAGE_HEAD if page == 1 else 0
        kind = content[head] if len(content) > head else 0
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR):
            return
        start = head + (12 if kind == INDEX_INTERIOR else 8)
        count = min(int.from_bytes(content[head + 3 : head + 5], "big"), (len(content) - start) // 2)
        for place in range(count):
            at = int.from_bytes(content[start + 2 * place : start + 2 * place + 2], "big")
            yield self._cell(content, at + 4 if kind == INDEX_INTERIOR else at, keyed=kind != TABLE_LEAF)

    def _cell(self, content: bytes, at: int, *, keyed: bool) -> PageCell:
        rowid = 0
        try:
            size, at = _varint(content, at)
            if not keyed:
                rowid, at = _varint(content, at)
            return PageCell(rowid, _record(self._payload(content, at, size, keyed=keyed)))
        except (IndexError, struct.error, ValueError):
            return PageCell(rowid, None)

    def _payload(self, content: bytes, at: int, size: int, *, keyed: bool) -> bytes:
        """Put a record together from its page and its overflow pages."""
        usable = self.page_bytes
        local_max = (usable - 12) * 64 // 255 - 23 if keyed else usable - 35
        if size <= local_max:
            return content[at : at + size]
        local_min = (usable - 12) * 32 // 255 - 23
        local = local_min + (size - local_min) % (usable - 4)
        local = local if local <= local_max else local_min
        parts, left = [content[at : at + local]], size - local
        following = int.from_bytes(content[at + local : at + local + 4], "big")
        for _ in range(_OVERFLOW_PAGES_MAX):
            if left <= 0:
                return b"".join(parts)
            page = self.newest(following)
            if len(page) < usable:
                raise ValueError("an overflow page is missing")
            parts.append(page[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            following = int.from_bytes(page[:4], "big")
        raise ValueError("an overflow chain does not end")


def _page_bytes(file: bytes, log: bytes) -> int:
    for size in (int.from_bytes(file[16:18], "big"), int.from_bytes(log[8:12], "big") if len(log) >= 12 else 0):
        real = 65_536 if size == 1 else size
        if 512 <= real <= 65_536 and real & (real - 1) == 0:
            return real
    return 4096


def _salts(log: bytes) -> tuple[int, int]:
    """Return what marks the frames of this round: from the header, or from the first frame when that is damaged."""
    if len(log) < HEADER.size + FRAME.size:
        return 0, 0
    first: tuple[int, int] = struct.unpack_from(">II", log, HEADER.size + 8)
    magic, _, _, _, salt1, salt2, *sums = HEADER.unpack_from(log)
    good = checksum(log[:24], magic & 1, (0, 0)) == tuple(sums)
    return (salt1, salt2) if good else first


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = content[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | content[at + 8], at + 9


def _record(payload: bytes) -> tuple[Any, ...]:
    """Read the columns of a record."""
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    columns = []
    for kind in kinds:
        value, at = _column(payload, at, kind)
        columns.append(value)
    if at > len(payload):
        raise ValueError("a record is cut short")
    return tuple(columns)


def _column(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (8, 9):
        return kind - 8, at
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind >= 12:
        end = at + (kind - 12) // 2
        raw = bytes(payload[at:end])
        return (raw.decode() if kind % 2 else raw), end
    if kind == 0:
        return None, at
    raise ValueError("there are no other kinds in these tables")
