"""Looks into the mailbox's files, and makes new ones of what can still be read. For a node that is not running.

A repair walks pages and log frames one by one and keeps every row whose own checksum holds. It writes a new file,
names what is lost, and puts the damaged files aside; it never changes them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from penstock.kernel.errors import Integrity
from penstock.services.mailbox.engines import schema
from penstock.services.mailbox.engines.engine import Corrupt
from penstock.services.mailbox.engines.files import DATABASE, examine, put_aside
from penstock.services.mailbox.engines.inspection import inspect
from penstock.services.mailbox.engines.opening import check_topics, read_settings
from penstock.services.mailbox.engines.pages import TABLE_LEAF, DatabasePages, PageCell
from penstock.services.mailbox.engines.sqlite_reads import SqliteReads
from penstock.services.mailbox.engines.wal import sync_directory
from penstock.services.mailbox.ids import BOOT_SHIFT
from penstock.services.mailbox.rows import (
    IdemClaim,
    TopicRow,
    read_row,
    read_state,
    settings_sum,
)

_FILE: Final = DATABASE
# How many columns a row of each table has. Rows that format 1 wrote, and that were never changed since, are shorter.
_WIDTHS: Final = {"msg": 11, "dead": 15, "st": 9, "dedup": 4, "acked": 3, "topic": 5, "settings": 3}
_INSERT: Final = {
    table: f"INSERT OR REPLACE INTO {table} VALUES {schema.values(1, count)}"  # noqa: S608 - names of ours
    for table, count in _WIDTHS.items()
}
_read_claim: Final = msgspec.msgpack.Decoder(IdemClaim).decode
_read_history: Final = msgspec.msgpack.Decoder(tuple[tuple[int, str], ...]).decode
# What an index or a state speaks of was alive: the rows it names must be somewhere.
_LOST: Final = """SELECT seq FROM named WHERE seq NOT IN (SELECT seq FROM msg)
    AND seq NOT IN (SELECT seq FROM dead) AND seq NOT IN (SELECT seq FROM acked) ORDER BY seq"""


@dataclass(slots=True)
class Repaired:
    """What a repair saved, and what it did not."""

    messages: int = 0
    dead_letters: int = 0
    damaged_frames: list[int] = field(default_factory=list)
    # Seqs of messages that are gone, as ranges; and how many records of any kind could not be read.
    lost: list[tuple[int, int]] = field(default_factory=list)
    unreadable: int = 0
    # Why nobody can tell by name what else is lost: what spoke of it is gone too. Empty where everything is accounted
    # for.
    lost_unknown: str = ""
    # Topics whose name is gone; their messages are now in `recovered:<number>`.
    renamed: list[str] = field(default_factory=list)
    kept_in: str = ""


def look(directory: Path) -> list[str]:
    """Say what is wrong with the files; change nothing."""
    path = directory / _FILE
    found = examine(directory)
    if found.damage:
        return [found.damage]
    if found.fresh:
        return [f"there is no {_FILE}: a mailbox has never been here"]
    beside = [Path(f"{path}-wal"), Path(f"{path}-shm")]
    before = {name for name in beside if name.exists()}
    reads = SqliteReads(path, None)
    try:
        return inspect(path, None) or [*_damaged_topics(path, reads), *_damaged_rows(reads)]
    except (Corrupt, apsw.Error) as damage:
        return [str(damage)]
    finally:
        reads.close_reader()
        for name in beside:
            # SQLite makes both to read; neither holds anything.
            if name not in before:
                name.unlink(missing_ok=True)


def _damaged_topics(path: Path, reads: SqliteReads) -> list[str]:
    """Say whether names and settings of topics match their checksums; an earlier format is read when it is migrated."""
    if reads.format() != schema.FORMAT:
        return []
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        check_topics(db)
    except Corrupt as damage:
        return [damage.detail]
    finally:
        db.close()
    return []


def _damaged_rows(reads: SqliteReads) -> list[str]:
    for table in ("msg", "dead"):
        last: int | None = 0
        while last is not None:
            last = reads.check_slice(table, last)
    ranges = as_ranges(sorted(reads.damaged))
    return [f"messages {first} to {last} do not match their checksums" for first, last in ranges]


def repair(directory: Path) -> Repaired:
    """Make a new file of every row whose own checksum holds, and put the damaged files aside."""
    path, fresh = directory / _FILE, directory / f"{_FILE}.repaired"
    fresh.unlink(missing_ok=True)
    found = examine(directory)
    with _bytes(path) as file, _bytes(Path(f"{path}-wal")) as log:
        pages = DatabasePages(file, log)
        report = Repaired(damaged_frames=pages.damaged_frames)
        report.lost_unknown = found.damage if found.loss_unknown else ""
        out = apsw.Connection(str(fresh))
        out.execute("PRAGMA synchronous = FULL").fetchall()
        with out:
            _salvage(pages, out, report)
        out.close()
    with fresh.open("rb") as written:
        os.fsync(written.fileno())
    report.kept_in = str(put_aside(directory) or "")
    fresh.rename(path)
    sync_directory(directory)
    return report


@contextmanager
def _bytes(path: Path) -> Iterator[Any]:
    """Map a file; one that is missing or empty is no bytes."""
    if not path.exists() or not path.stat().st_size:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


class _Salvage:
    """Sorts records into the tables they come from: by their shape, and by the checksum that each must match."""

    def __init__(self, out: apsw.Connection, report: Repaired) -> None:
        self._out = out
        self._report = report
        self.meta: dict[str, Any] = {}
        self.gen = 0

    def take(self, cells: Iterable[PageCell]) -> set[int]:
        """Keep what holds; returns the rowids of what does not."""
        bad: set[int] = set()
        for cell in cells:
            if cell.columns is None or not self._keep(cell.rowid, cell.columns):
                bad.add(cell.rowid)
        return bad

    def _keep(self, rowid: int, columns: tuple[Any, ...]) -> bool:
        table = _table_of(columns)
        if table == "sqlite_master":
            return True  # it is made anew
        if table is None:
            return False
        row = _filled(table, (rowid, *columns[1:]))
        try:
            if not self._holds(table, row):
                return False
            self._out.execute(_INSERT[table], row)
        except (
            Integrity,
            msgspec.MsgspecError,
            TypeError,
            AttributeError,
            OverflowError,
            UnicodeDecodeError,
            apsw.Error,
        ):
            return False
        return True

    def _holds(self, table: str, row: tuple[Any, ...]) -> bool:
        """Tell whether a row matches its own checksum."""
        match table:
            case "msg":
                read_row(row)
            case "dead":
                read_row((*row[:10], row[14]))
                _read_history(row[13])
            case "st":
                self.gen = max(self.gen, read_state(row).gen)
                self.name(row[0])
            case "dedup":
                return bool(_read_claim(row[3]).name == row[1])
            case "topic":
                return bool(TopicRow(row[0], row[1], row[3], row[4]).sum == row[2])
            case "settings":
                read_settings(row[1])
                return bool(settings_sum(row[0], row[1]) == row[2])
        return True

    def entry(self, columns: tuple[Any, ...]) -> None:
        """Note what an entry of an index, or of the table of settings, says."""
        if len(columns) == 2 and isinstance(columns[0], str):
            self.meta[columns[0]] = columns[1]
        elif len(columns) in (4, 5) and isinstance(columns[-1], int) and columns[-3] == columns[-1]:
            # (topic, seq, size, rowid) and (topic, key, seq, size, rowid): the same number in two places.
            self.name(columns[-1])

    def name(self, seq: int) -> None:
        """Note that a message was alive."""
        self._out.execute("INSERT OR IGNORE INTO named VALUES (?)", (seq,))


def _table_of(columns: tuple[Any, ...]) -> str | None:
    """Tell by its shape which table a record is from; None: from none of ours."""
    match len(columns):
        case 10 | 11:
            return "msg"
        case 14 | 15:
            return "dead"
        case 8 | 9:
            return "st"
        case 4:
            return "dedup"
        case 5:
            return "sqlite_master" if isinstance(columns[0], str) else "topic"
        case 3 if isinstance(columns[1], str):
            return "topic"
        case 3:
            return "settings" if isinstance(columns[1], bytes) else "acked"
    return None


def _filled(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give a row of format 1 what it lacks: no group, no first delivery, the old form of slots, generation 0."""
    if len(row) == _WIDTHS[table]:
        return row
    return (*row, *{"topic": (1, 0), "st": (0,)}.get(table, (None,)))


def _salvage(pages: DatabasePages, out: apsw.Connection, report: Repaired) -> None:
    for statement in schema.TABLES:
        out.execute(statement)
    out.execute("CREATE TEMP TABLE named (seq INTEGER PRIMARY KEY)")
    salvage = _Salvage(out, report)
    free = pages.free()
    for page in range(1, pages.count + 1):
        if page not in free:
            _salvage_page(pages, page, salvage, report)
    _settle(out, report)
    _write_meta(out, salvage)
    report.lost = as_ranges(_numbers(out, _LOST))
    (report.messages,) = _numbers(out, "SELECT count(*) FROM msg")
    (report.dead_letters,) = _numbers(out, "SELECT count(*) FROM dead")


def _numbers(out: apsw.Connection, statement: str) -> list[int]:
    found: list[tuple[Any, ...]] = out.execute(statement).fetchall()
    return [int(number) for (number,) in found]


def _salvage_page(pages: DatabasePages, page: int, salvage: _Salvage, report: Repaired) -> None:
    """Read a page; where its newest copy is damaged, an older one may still hold the same rows: they never change."""
    versions = pages.versions(page)
    if not versions:
        return
    head = 100 if page == 1 else 0
    content = versions[0].content
    if content[head] != TABLE_LEAF:
        for cell in pages.cells(page, content):
            if cell.columns is not None:
                salvage.entry(cell.columns)
        return
    bad = salvage.take(pages.cells(page, content))
    for version in versions[1:] if bad else ():
        same = [cell for cell in pages.cells(page, version.content) if cell.rowid in bad]
        bad -= {cell.rowid for cell in same} - salvage.take(same)
    report.unreadable += len(bad)
    for rowid in bad:
        salvage.name(rowid)


def _settle(out: apsw.Connection, report: Repaired) -> None:
    """Make the tables agree: what was acked stays acked, what is dead is dead, every message has a topic."""
    out.execute("DELETE FROM msg WHERE seq IN (SELECT seq FROM acked) OR seq IN (SELECT seq FROM dead)")
    out.execute("DELETE FROM st WHERE seq NOT IN (SELECT seq FROM msg)")
    # Settings without a topic's name hold for nobody.
    out.execute("DELETE FROM settings WHERE topic NOT IN (SELECT id FROM topic)")
    unnamed = "SELECT topic FROM msg UNION SELECT topic FROM dead EXCEPT SELECT id FROM topic"
    for number in _numbers(out, unnamed):
        row = TopicRow(number, f"recovered:{number}")
        report.renamed.append(row.name)
        out.execute(_INSERT["topic"], (number, row.name, row.sum, row.form, row.generation))


def _write_meta(out: apsw.Connection, salvage: _Salvage) -> None:
    """Begin a new life: no receipt of an earlier one may be mistaken for one of it."""
    found = salvage.meta
    boot = found.get("boot") if isinstance(found.get("boot"), int) else 0
    key = found.get("key")
    boot = max(boot or 0, salvage.gen >> BOOT_SHIFT)
    good_key = key if isinstance(key, bytes) and len(key) == 32 else os.urandom(32)
    for name, value in (("format", schema.FORMAT), ("boot", boot + 1), ("key", good_key)):
        out.execute("INSERT INTO meta VALUES (?, ?)", (name, value))


def as_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Write ascending numbers as ranges."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
