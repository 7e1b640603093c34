"""Reads a write-ahead log before SQLite recovers it, and keeps it ready for use.

SQLite ends recovery at the first bad frame and says nothing of what came after. With every commit synced, at most
the last one can be torn; a bad frame with two or more commits behind it is damage to synced data, and recovering
would lose acknowledged messages in silence.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

HEADER: Final = struct.Struct(">IIIIIIII")
FRAME: Final = struct.Struct(">IIIIII")
_MAGIC: Final = 0x377F0682
_COMMITS_AFTER_MAX: Final = 1
_FILL_BYTES: Final = 1 << 20


def fill_wal(database: Path, size: int) -> None:
    """Let the log be as large as it will get, in written zeros: a commit then syncs data, and not a file that grew.

    Zeros are no frame, so SQLite ends its recovery before them; afterwards it overwrites the log in place.
    """
    with Path(f"{database}-wal").open("ab") as file:
        missing = size - file.tell()
        file.writelines(bytes(_FILL_BYTES) for _ in range(0, missing, _FILL_BYTES))
        file.flush()
        os.fsync(file.fileno())
    # SQLite syncs the directory only for a log that it made itself.
    sync_directory(database.parent)


def renew_wal(database: Path) -> None:
    """Put a synced copy in the place of a log whose sync failed.

    After a failed sync the system may show bytes that it will never write, and call them clean. Copied, they are
    written again: what is read after this is on the disk. The index over the old log goes with it.
    """
    path, copy = Path(f"{database}-wal"), Path(f"{database}-wal.new")
    if path.exists():
        with path.open("rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, _FILL_BYTES)
            target.flush()
            os.fsync(target.fileno())
        copy.replace(path)
    Path(f"{database}-shm").unlink(missing_ok=True)
    sync_directory(database.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LogHead(NamedTuple):
    """What SQLite would recover from a log: the frames up to the last whole commit, and the salts of this round."""

    frames: int = 0
    commits: int = 0
    salts: tuple[int, int] = (0, 0)
    # A bad frame with so many commits behind it that recovery would drop synced ones.
    damaged: int | None = None
    # The pages of the database that the log holds, as far as it is committed.
    pages: frozenset[int] = frozenset()


def read_log(path: Path) -> LogHead:
    """Read a log as recovery would; one that is missing, empty or without a sound header holds nothing."""
    try:
        return scan_log(path.read_bytes())
    except FileNotFoundError:
        return LogHead()


def scan_log(data: bytes) -> LogHead:
    """Walk the frames to the first that is of another round or does not match its checksum, and judge what follows."""
    head = _sound_header(data)
    if head is None:
        return LogHead(damaged=_whole_log(data))
    page_bytes, big, salts = head
    running = checksum(data[:24], big, (0, 0))
    step = FRAME.size + page_bytes
    walked: list[int] = []
    frames = commits = 0
    damaged = None
    for number, (page, size, one, two, *sums) in enumerate(_frames(data, 0, page_bytes)):
        at = HEADER.size + number * step
        if (one, two) != salts:
            damaged = _dropped_by_salts(data, number, page_bytes, salts)
            break
        running = checksum(data[at : at + 8], big, running)
        running = checksum(data[at + FRAME.size : at + step], big, running)
        if running != tuple(sums):
            damaged = number if _commits(data, number, page_bytes, salts) > _COMMITS_AFTER_MAX else None
            break
        walked.append(page)
        if size:
            frames, commits = number + 1, commits + 1
    return LogHead(frames, commits, salts, damaged, frozenset(walked[:frames]))


def _dropped_by_salts(data: bytes, number: int, page_bytes: int, salts: tuple[int, int]) -> int | None:
    """Judge a frame with other salts: it is of an earlier round, or it was damaged and more of this round follow.

    A frame of an earlier round has two other salts. Where one of them still matches, the frame is of this round and may
    have ended a commit too.
    """
    following = _commits(data, number + 1, page_bytes, salts)
    at = HEADER.size + number * (FRAME.size + page_bytes)
    _, size, one, two, *_ = FRAME.unpack_from(data, at)
    ended = 1 if size and (one == salts[0] or two == salts[1]) else 0
    return number if following and following + ended > _COMMITS_AFTER_MAX else None


def _sound_header(data: bytes) -> tuple[int, int, tuple[int, int]] | None:
    """Return page size, byte order and salts of a header whose checksum holds."""
    if len(data) < HEADER.size:
        return None
    magic, _, page_bytes, _, salt1, salt2, sum1, sum2 = HEADER.unpack_from(data)
    if (
        magic & ~1 != _MAGIC
        or not 512 <= page_bytes <= 65_536
        or checksum(data[:24], magic & 1, (0, 0)) != (sum1, sum2)
    ):
        return None
    return page_bytes, magic & 1, (salt1, salt2)


def _whole_log(data: bytes) -> int | None:
    """Judge a log whose header is damaged: SQLite would ignore all of it."""
    for page_bytes in (4096, 1024, 2048, 8192, 512, 16_384, 32_768, 65_536):
        if len(data) >= HEADER.size + FRAME.size + page_bytes:
            salts = struct.unpack_from(">II", data, HEADER.size + 8)
            if _commits(data, 0, page_bytes, salts) > _COMMITS_AFTER_MAX:
                return 0
    return None


def _commits(data: bytes, first: int, page_bytes: int, salts: tuple[int, ...]) -> int:
    """Count frames from `first` on that end a commit of this round."""
    return sum(1 for _, size, *found in _frames(data, first, page_bytes) if size and tuple(found[:2]) == salts)


def _frames(data: bytes, first: int, page_bytes: int) -> Iterator[tuple[int, ...]]:
    step = FRAME.size + page_bytes
    for at in range(HEADER.size + first * step, len(data) - step + 1, step):
        yield FRAME.unpack_from(data, at)


def checksum(data: bytes, big: int, start: tuple[int, int]) -> tuple[int, int]:
    """Go on with SQLite's checksum over these bytes."""
    one, two = start
    words = struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data)
    for place in range(0, len(words), 2):
        one = (one + words[place] + two) & 0xFFFFFFFF
        two = (two + words[place + 1] + one) & 0xFFFFFFFF
    return one, two
