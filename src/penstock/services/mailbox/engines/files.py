"""The mailbox's files before SQLite opens them: whether they are what the last life left there.

SQLite trusts its files. It discards the log of an empty database, and it ends recovery at the first frame that it does
not like; both in silence. So the engine keeps a record beside the database, `mailbox.record`: whether a life is under
way, and how many frames its log holds at least. The record is written after every commit, once the commit is synced,
and never claims more than the disk holds. It is not synced itself: it survives the end of the process exactly, and a
power cut at worst with an older, smaller claim.

`examine` compares files and record. It reads and never writes; whoever finds damage leaves the files alone. Two marks,
one in the mailbox's directory and one beside it, tell a mailbox that lost its files from one that never was.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from penstock.services.mailbox.engines.wal import LogHead, read_log, sync_directory

DATABASE: Final = "mailbox.db"
RECORD: Final = "mailbox.record"
MARK: Final = "mailbox.lived"
_MAGIC: Final = b"PSTKREC1"
# Magic, a life is under way, the log's salts, frames, lives, checkpoints, wall ms, ms since the machine's boot, its id.
_FIELDS: Final = struct.Struct(">8sIIIIQQQQ16s")
_SUM: Final = struct.Struct(">I")
_SQLITE: Final = b"SQLite format 3\0"
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class LogRecord:
    """What the files must hold at least."""

    # A life is under way: it was not closed in good order.
    in_use: bool = False
    salts: tuple[int, int] = (0, 0)
    frames: int = 0
    # How many lives began and how many checkpoints copied a whole log; the database's own numbers are never smaller.
    life: int = 0
    checkpoints: int = 0
    # When it was written: on the mailbox's wall clock, and since the machine (by its id) was booted.
    wall_ms: int = 0
    uptime_ms: int = 0
    machine: bytes = bytes(16)

    def pack(self) -> bytes:
        """Write it with its checksum."""
        numbers = (self.frames, self.life, self.checkpoints, self.wall_ms, self.uptime_ms)
        body = _FIELDS.pack(_MAGIC, self.in_use, *self.salts, *numbers, self.machine)
        return body + _SUM.pack(zlib.crc32(body))

    @classmethod
    def unpack(cls, data: bytes) -> Self | None:
        """Read one; None when it is damaged."""
        if len(data) != _FIELDS.size + _SUM.size or _SUM.pack(zlib.crc32(data[: _FIELDS.size])) != data[-_SUM.size :]:
            return None
        magic, in_use, one, two, *rest = _FIELDS.unpack_from(data)
        return cls(bool(in_use), (one, two), *rest) if magic == _MAGIC else None


class RecordFile:
    """The record of one open mailbox. The engine's thread alone writes it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / RECORD
        self._descriptor = -1
        self.last = LogRecord()

    def begin(self, record: LogRecord) -> None:
        """Say durably that a life is under way, before SQLite may change anything."""
        self.close()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.write(replace(record, in_use=True))
        os.fsync(self._descriptor)
        sync_directory(self._path.parent)

    def write(self, record: LogRecord) -> None:
        """Replace the record in place; the system writes it out in its own time."""
        self.last = record
        if self._descriptor >= 0:
            os.pwrite(self._descriptor, record.pack(), 0)

    def end(self) -> None:
        """Say durably that the life was closed in good order and the log is not needed any more."""
        if self._descriptor >= 0:
            self.write(replace(self.last, in_use=False, salts=(0, 0), frames=0))
            os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class FilesFound:
    """What was found before anything was opened."""

    # There was never a mailbox here.
    fresh: bool = False
    # Why the files must not be opened, as a sentence; empty when they may be.
    damage: str = ""
    where: str = "file"
    record: LogRecord | None = None
    # Nobody can tell by name what is lost: what spoke of it is gone too.
    loss_unknown: bool = False


def examine(directory: Path, outer_mark: Path | None = None) -> FilesFound:
    """Judge the files by their sizes, headers, the record and the marks. Nothing is written, SQLite is not asked."""
    database = directory / DATABASE
    record, record_damaged = _read_record(directory)
    log = read_log(Path(f"{database}-wal"))
    size = _size(database)
    if size == 0:
        marks = [mark for mark in (directory / MARK, outer_mark) if mark is not None and mark.exists()]
        return _without_database(directory, log, marks, lived=bool(marks) or record is not None or record_damaged)
    damage = _damaged_database(database, size, log)
    if damage:
        return FilesFound(damage=damage, record=record, loss_unknown=True)
    if record_damaged:
        detail = f"{RECORD} is damaged: it cannot be told whether the log is whole. Run `penstock mailbox repair`."
        return FilesFound(damage=detail, where="record")
    if log.damaged is not None and log.salts != (0, 0):
        detail = f"Frame {log.damaged} of the write-ahead log is damaged, and commits follow it. Nothing was changed."
        return FilesFound(damage=detail, where="wal", record=record)
    damage = _missing_from_log(record, log) if record is not None else ""
    if not damage and log.damaged is not None:
        damage = "The header of the write-ahead log is damaged, and commits follow it. Nothing was changed."
    return FilesFound(damage=damage, where="wal" if damage else "file", record=record, loss_unknown=bool(damage))


def leave_mark(mark: Path) -> None:
    """Note that a mailbox lived here; without room for that, the next start does it."""
    if not mark.exists():
        with suppress(OSError):
            mark.touch(mode=0o600)
            sync_directory(mark.parent)


def put_aside(directory: Path) -> Path | None:
    """Move every file of the mailbox into a new directory beside them; None when there is none to move."""
    names = [DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", RECORD]
    found = [directory / name for name in names if (directory / name).exists()]
    if not found:
        return None
    number = 1
    while (aside := directory / f"damaged-{number}").exists():
        number += 1
    aside.mkdir(mode=0o700)
    for path in found:
        path.rename(aside / path.name)
    sync_directory(directory)
    return aside


def identity(path: Path) -> tuple[int, int]:
    """Name the file behind a path; (0, 0) when there is none."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_record(directory: Path) -> tuple[LogRecord | None, bool]:
    """Return the record, and whether there is one that cannot be read."""
    try:
        found = LogRecord.unpack((directory / RECORD).read_bytes())
    except FileNotFoundError:
        return None, False
    return found, found is None


def _without_database(directory: Path, log: LogHead, marks: list[Path], *, lived: bool) -> FilesFound:
    if not lived and not log.commits:
        return FilesFound(fresh=True)
    what = "is empty" if (directory / DATABASE).exists() else "is missing"
    left = [*marks, *(path for path in (directory / RECORD, Path(f"{directory / DATABASE}-wal")) if path.exists())]
    names = ", ".join(str(path) for path in left)
    detail = (
        f"{DATABASE} {what}, and a mailbox lived here. Nothing was changed. Put the file back, or run "
        f"`penstock mailbox repair`. To begin with an empty mailbox, remove {names}."
    )
    return FilesFound(damage=detail, loss_unknown=True)


def _damaged_database(path: Path, size: int, log: LogHead) -> str:
    """Say what is wrong with a database file by its first page and its size."""
    with path.open("rb") as file:
        head = file.read(100)
    if not head.startswith(_SQLITE):
        return f"{DATABASE} does not begin like a SQLite file: it was overwritten. Nothing was changed."
    if len(head) < 100:
        return f"{DATABASE} was cut off. Nothing was changed."
    page_bytes = int.from_bytes(head[16:18], "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(head[28:32], "big")
    # The number of pages counts only where the program that wrote it also wrote the change counter beside it.
    # A checkpoint that was cut off leaves a short file and all that is missing in the log.
    if head[24:28] == head[92:96] and not log.pages.issuperset(range(size // page_bytes + 1, pages + 1)):
        return f"{DATABASE} has {size} bytes and should have {pages * page_bytes}: it was cut off. Nothing was changed."
    return ""


def _missing_from_log(record: LogRecord, log: LogHead) -> str:
    """Compare the log with what it held at least; an empty sentence when nothing is missing."""
    if not record.in_use:
        if log.commits:
            return "There is a log beside a database that was closed in good order: it is of another time."
        return ""
    if not record.frames:
        return ""
    if not log.frames:
        return (
            f"The write-ahead log is gone or overwritten; it held {record.frames} frames at least. Nothing was changed."
        )
    if log.salts == record.salts:
        if log.frames < record.frames:
            return (
                f"The write-ahead log ends after {log.frames} whole frames; it held {record.frames} at least. "
                "Nothing was changed."
            )
        return ""
    # Each round of the log counts its first salt up by one. A later round is fine: this one was in the database by
    # then.
    if (log.salts[0] - record.salts[0]) % (1 << 32) >= _HALF:
        return "The write-ahead log is of an earlier time than the last commit. Nothing was changed."
    return ""
