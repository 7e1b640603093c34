"""The embedded engine: one SQLite file in WAL mode, one writer, readers beside it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import lt
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from penstock.contracts.mailbox import TopicSettings
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.claims import CLASS_SHIFT
from penstock.services.mailbox.engines import schema
from penstock.services.mailbox.engines.engine import (
    Corrupt,
    DiskFull,
    EngineContents,
    EngineFailed,
)
from penstock.services.mailbox.engines.file_guard import FileGuard
from penstock.services.mailbox.engines.inspection import inspect
from penstock.services.mailbox.engines.log_copier import LogCopier
from penstock.services.mailbox.engines.opening import ages, begin_life, fetch, read_counts
from penstock.services.mailbox.engines.reserve import ReserveFile, ReserveSpace
from penstock.services.mailbox.engines.sqlite_reads import SqliteReads, connect
from penstock.services.mailbox.engines.wal import fill_wal, renew_wal
from penstock.services.mailbox.rows import ROW_WIDTH, IdemClaim, TopicRow, columns_of, settings_sum

# How many rows one statement may hold; other numbers take several.
_SIZES: Final = (256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
_RANGE_MIN: Final = 4
_CHECKPOINT_IDLE_BYTES: Final = 1 << 20
_SLICE: Final = 1000
_INSERT: Final = f"INSERT INTO msg ({schema.ROW_COLUMNS}) VALUES "  # noqa: S608
_PAGE_BYTES: Final = 4096
_FRAME_BYTES: Final = _PAGE_BYTES + 24
_REGAIN_FIRST_S: Final = 2.0
_REGAIN_LAST_S: Final = 30.0
# A file is made smaller when this much of it is free and no more than this is in use: that takes a few hundred
# milliseconds.
_COMPACT_FREE_BYTES: Final = 32 << 20
_COMPACT_LIVE_BYTES: Final = 16 << 20
_BURY: Final = (
    f"INSERT INTO dead ({schema.DEAD_COLUMNS}) "  # noqa: S608
    f"SELECT {schema.ROW_COLUMNS}, ?, ?, ?, ? FROM msg WHERE seq = ?"
)
# Of the claims of one class, the first slice of those that are below their floor.
_FORGET: Final = "DELETE FROM dedup WHERE n >= ?2 AND n < min(?1, (SELECT min(n) FROM dedup WHERE n >= ?2) + ?3)"
_TOPIC: Final = "INSERT OR REPLACE INTO topic (id, name, form, gen, sum) VALUES (?, ?, ?, ?, ?)"
_pack_claim: Final = msgspec.msgpack.Encoder().encode
_pack_history: Final = msgspec.msgpack.Encoder().encode
_pack_settings: Final = msgspec.msgpack.Encoder().encode


class SqliteEngine:
    """Messages in `mailbox.db`.

    Owns the writing connection; `reads` has the other. Durability `fsync` syncs every commit, `os` leaves that to the
    system.
    """

    name = "sqlite"
    monotonic = staticmethod(time.monotonic)

    def __init__(  # noqa: PLR0913 - one place and its options, all by name
        self,
        directory: Path,
        *,
        fsync: bool = True,
        wal_bytes: int = 8 << 20,
        vfs: str | None = None,
        reserve: ReserveSpace | None = None,
        outer_mark: Path | None = None,
    ) -> None:
        """Keep everything in this directory; `vfs` (a file layer of SQLite) and `reserve` are for tests."""
        self.path = directory / "mailbox.db"
        self._vfs = vfs
        self.reads = SqliteReads(self.path, vfs)
        # Copies the log on a thread of its own. Whoever copies, or closes the files, holds the lock.
        self._copier = LogCopier(self.path, vfs)
        self._copying = threading.Lock()
        self.files = FileGuard(directory, durable=fsync, outer_mark=outer_mark)
        self.durable = True
        self._fsync = fsync
        self._wal_bytes_max = wal_bytes
        self._reserve: ReserveSpace = reserve or ReserveFile(directory / "reserve", wal_bytes)
        # The disk is full: messages are refused, settlements use the reserve.
        self.full = False
        self._db: apsw.Connection | None = None
        self._broken = False
        self._acked = 0
        # Messages are taken although there is no reserve: the file has free pages instead.
        self._without_reserve = False
        self._regain_s = _REGAIN_FIRST_S
        self._regain_at = 0.0
        # Stored in the database before each checkpoint, so that an earlier copy of it can be told.
        self._checkpoint_number = 0
        # A commit has stored the number of the next checkpoint.
        self._numbered = False
        # Read by the metrics: how long checkpoints took, and how large the WAL is.
        self.checkpoint_s = 0.0
        self.commit_s = 0.0
        self.checkpoints = 0
        self.wal_bytes = 0

    # --- life

    def open(self, delays_max: int) -> EngineContents:
        """Check the log before SQLite touches it, open, and read what is there."""
        self.close()
        damage = self._prepare_files()
        self.reads.open_reader()
        try:
            self._begin_record()
            opened = self._open_file(delays_max)
            self.files.opened(opened.boot)
            opened = replace(opened, damage=damage, before=self.files.last_written())
            self._fill_wal()
            self._copier.open()
            return opened
        except OSError as exc:
            raise EngineFailed(f"The mailbox file cannot be used: {exc.strerror}") from exc
        except (apsw.CorruptError, apsw.NotADBError) as exc:
            self._let_go()
            raise Corrupt(f"The mailbox file is damaged: {exc}", where="file") from exc
        except Corrupt:
            self._let_go()
            raise
        except apsw.Error as exc:
            raise EngineFailed(f"The mailbox file cannot be used: {exc}") from exc

    def _open_file(self, delays_max: int) -> EngineContents:
        try:
            return self._begin(self._connect_writer(), delays_max)
        except (apsw.FullError, apsw.IOError):
            # Even the number of this life, or SQLite's own index, finds no room: it gets the one that was held back.
            self._run_out()
            return self._begin(self._connect_writer(), delays_max)

    def _connect_writer(self) -> apsw.Connection:
        if self._db is not None:
            self._db.close(force=True)
        self._db = db = connect(self.path, self._vfs, create=True)
        self._set_pragmas(db)
        db.set_wal_hook(self._wal_grew)
        return db

    def _prepare_files(self) -> str:
        """Examine the files before anything is changed.

        Returns what is wrong with them where that is no reason to refuse.
        """
        try:
            damage = self.files.prepare()
            if self._broken:
                # The copy may need the room that is held back; it is taken again below.
                self._reserve.release()
                renew_wal(self.path)
        except OSError as exc:
            raise EngineFailed(f"The mailbox file cannot be used: {exc.strerror}") from exc
        self._broken, self.full = False, not self._reserve.keep()
        return damage

    def _begin_record(self) -> None:
        try:
            self.files.begin()
        except OSError:
            # There is no room for a few bytes: the room that is held back is for this.
            self._run_out()
            self.files.begin()

    def _fill_wal(self) -> None:
        """Write the log out to its full size, after SQLite has opened or replaced it: then no commit grows it."""
        try:
            if not self.full:
                fill_wal(self.path, self._wal_bytes_max)
        except OSError:
            self._run_out()

    def _let_go(self) -> None:
        """Close a file that is damaged without writing a byte to it."""
        self._broken = True
        self.close()

    def _set_pragmas(self, db: apsw.Connection) -> None:
        """Set each by its own statement and read it back: a mismatch refuses to start."""
        synchronous = ("FULL", 2) if self._fsync else ("NORMAL", 1)
        for name, text, want in (
            ("journal_mode", "WAL", "wal"),
            ("synchronous", *synchronous),
            ("wal_autocheckpoint", "0", 0),
            ("cache_size", "-16384", -16384),
            ("temp_store", "MEMORY", 2),
            # A log that grew while a long check held it back shrinks again.
            ("journal_size_limit", str(self._wal_bytes_max), self._wal_bytes_max),
        ):
            fetch(db, f"PRAGMA {name} = {text}")
            found = fetch(db, f"PRAGMA {name}")
            if found != [(want,)]:
                raise EngineFailed(f"SQLite did not take {name} = {text}: {found}")

    def _begin(self, db: apsw.Connection, delays_max: int) -> EngineContents:
        life, self._checkpoint_number = ages(db)
        self.files.check_age(life, self._checkpoint_number)
        boot, key = begin_life(db)
        self._acked = fetch(db, "SELECT count(*) FROM acked")[0][0]
        states, later = self.reads.open_states(delays_max)
        for row, state in states:
            if state is None:
                # A damaged state is deleted. Windows leave out what the table calls leased or delayed, so the message
                # would be stuck.
                db.execute("DELETE FROM st WHERE seq = ?", (row.seq,))
        return replace(read_counts(db), boot=boot, key=key, states=states, later=later)

    def close(self) -> None:
        """Checkpoint and close, unless the file failed: then nothing more is written to it."""
        db, self._db = self._db, None
        self.reads.close_reader()
        with self._copying:
            self._broken = self._broken or self._copier.failed
            self._copier.close()
        if db is None:
            self.files.abandon()
            return
        whole = False
        try:
            if not self._broken:
                self.files.verify()
                self._number_checkpoint(db)
                whole = not fetch(db, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        except (apsw.Error, EngineFailed):
            self._broken = True
        db.close(force=True)
        try:
            if whole:
                self.files.checkpointed(self._checkpoint_number)
                self.files.closed()
                # The log is gone, so there is room, also on a disk that was full: the next life needs some to open.
                self._reserve.keep()
            else:
                self.files.abandon()
        except OSError:
            self.files.abandon()

    # --- commit

    def prepare(self, batch: Batch) -> None:
        """Make the statements on the loop: the writer's thread then waits for SQLite and not for the interpreter."""
        batch.statements = _statements(batch)

    def commit(self, batch: Batch) -> None:
        """Write everything in one transaction; statements take many rows at once."""
        db = self._db
        if db is None or self._broken:
            raise EngineFailed("The engine is not open.")
        if batch.rows and not self._has_room(db):
            raise DiskFull
        before, self.commit_s = self.monotonic(), math.inf
        ends_log = self._copier.done and not self._numbered
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                _write(db, batch)
                if ends_log:
                    self._put_number(db)
                db.execute("COMMIT")
            except apsw.FullError as exc:
                _roll_back(db)
                self._run_out()
                raise DiskFull from exc
        except apsw.Error as exc:
            self._broken = True
            raise EngineFailed(f"The commit failed: {exc}", outcome="unknown") from exc
        if ends_log:
            self._checkpoint_number, self._numbered = self._checkpoint_number + 1, True
        self._note_commit(batch.at_ms)
        self.commit_s = self.monotonic() - before
        self._acked += len(batch.acked)
        if self.wal_bytes >= self._wal_bytes_max:
            # Nobody came to do it in between: the room that is held back is only as large as the log.
            self._checkpoint(db)

    @property
    def checkpoint_due(self) -> bool:
        """Tell whether little of the log is left to copy, or three quarters of it are used."""
        return self._numbered or self._copier.failed or self.wal_bytes >= self._wal_bytes_max * 3 // 4

    @property
    def copy_due(self) -> bool:
        """Tell whether half of the log is used."""
        return self.wal_bytes >= self._wal_bytes_max // 2 and not self._copier.done

    def copy_log(self) -> None:
        """Copy the log into the database, beside the commits. The checkpoint follows the next commit."""
        with self._copying:
            if not self._copier.ready:
                return
            try:
                self._copier.copy()
                # SQLite syncs only when the whole log is copied. Nothing relies on this sync: it leaves less to that.
                self.files.write_out()
            except apsw.FullError:
                # The checkpoint finds that too, and knows what to do.
                pass
            except (apsw.Error, OSError) as exc:
                # Commits need only the log. The next checkpoint refuses, before anything relies on the copy.
                self._copier.failed = True
                raise EngineFailed(f"The log was not copied: {exc}") from exc
            self._copier.done = True

    def checkpoint(self) -> None:
        """Copy what is left of the log into the database, between two commits."""
        if self._db is not None and not self._broken:
            self._checkpoint(self._db)

    def _note_commit(self, at_ms: int) -> None:
        """Put the commit on record; one that went into a file nobody will find again is none."""
        try:
            self.files.committed(self.wal_bytes // _FRAME_BYTES, at_ms)
        except (OSError, EngineFailed) as exc:
            self._broken = True
            raise EngineFailed(
                "The mailbox's files were removed or replaced while they were in use.", outcome="unknown"
            ) from exc

    def _wal_grew(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self.wal_bytes = pages * _FRAME_BYTES
        return apsw.SQLITE_OK

    def idle(self) -> None:
        """Checkpoint in a quiet moment, and make the file smaller, when there is something to gain."""
        db = self._db
        if db is None or self._broken:
            return
        if self.wal_bytes > _CHECKPOINT_IDLE_BYTES:
            self._checkpoint(db)
        self._compact(db)

    def _checkpoint(self, db: apsw.Connection) -> None:
        before = self.monotonic()
        if self._copier.failed:
            self._broken = True
            raise EngineFailed("The log was not copied.", outcome="unknown")
        try:
            with self._copying:
                if not self._numbered:
                    self._number_checkpoint(db)
                self._numbered = False
                self._copier.release()
                # Passive: it never waits for a reader; a log that is copied whole is overwritten by the next batch.
                busy, frames, copied = fetch(db, "PRAGMA wal_checkpoint(PASSIVE)")[0]
        except apsw.FullError:
            # The log still has everything. The reserve is as large as the log: the next try finds room.
            self._run_out()
            return
        except apsw.Error as exc:
            self._broken = True
            raise EngineFailed(f"The checkpoint failed: {exc}", outcome="unknown") from exc
        finally:
            self.checkpoint_s += self.monotonic() - before
            self.checkpoints += 1
        if frames == copied and not busy:
            # Otherwise a reader holds an old page, and the next batch tries again.
            self.wal_bytes = 0
            self.files.checkpointed(self._checkpoint_number)

    def _number_checkpoint(self, db: apsw.Connection) -> None:
        with db:
            self._put_number(db)
        self._checkpoint_number += 1

    def _put_number(self, db: apsw.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('checkpoints', ?)", (self._checkpoint_number + 1,))

    # --- a full disk

    def _run_out(self) -> None:
        """Take no more messages, and release the reserve for settlements."""
        self.full = True
        self._without_reserve = False
        self._regain_s = _REGAIN_FIRST_S
        self._regain_at = self.monotonic() + self._regain_s
        self._reserve.release()

    def _has_room(self, db: apsw.Connection) -> bool:
        """Tell whether messages may be taken: the disk has room, or so much of the file is free that none is needed."""
        if self._without_reserve and self._free_bytes(db) < self._wal_bytes_max:
            self._run_out()
        if self.full:
            self._regain(db)
        return not self.full

    def _regain(self, db: apsw.Connection) -> None:
        """Try to take messages again: two seconds after the disk was full, then at growing intervals."""
        now = self.monotonic()
        if not self.full or now < self._regain_at:
            return
        if self._reserve.keep():
            self.full = self._without_reserve = False
        elif self._free_bytes(db) >= 2 * self._wal_bytes_max and self._log_is_filled():
            # The log is as large as it gets, and all of it fits into free pages: neither needs the disk.
            self.full, self._without_reserve = False, True
        else:
            self._regain_s = min(2 * self._regain_s, _REGAIN_LAST_S)
            self._regain_at = now + self._regain_s

    def _free_bytes(self, db: apsw.Connection) -> int:
        return int(fetch(db, "PRAGMA freelist_count")[0][0]) * _PAGE_BYTES

    def _log_is_filled(self) -> bool:
        log = Path(f"{self.path}-wal")
        return log.exists() and log.stat().st_size >= self._wal_bytes_max

    def tend(self) -> None:
        """Look after the files, about once a second: they are still there, and a disk that has room again is used."""
        db = self._db
        if db is None or self._broken:
            return
        try:
            self.files.verify()
        except EngineFailed:
            self._broken = True
            raise
        self._regain(db)

    def _compact(self, db: apsw.Connection) -> None:
        """Give the disk back what the file does not need, where little is left to copy: nobody waits long for it."""
        pages = int(fetch(db, "PRAGMA page_count")[0][0]) * _PAGE_BYTES
        free = self._free_bytes(db)
        if free < _COMPACT_FREE_BYTES or pages - free > _COMPACT_LIVE_BYTES:
            return
        try:
            db.execute("VACUUM")
            self._checkpoint(db)
        except apsw.FullError:
            # It is tried again at the next quiet moment; the file is as it was.
            return
        except apsw.Error as exc:
            self._broken = True
            raise EngineFailed(f"The file could not be made smaller: {exc}", outcome="unknown") from exc

    def check(self) -> list[str]:
        """Look for damage; it takes long and uses connections of its own."""
        return inspect(self.path, self._vfs)

    def rebuild(self) -> bool:
        """Make every index anew from its table."""
        db = self._db
        if db is None or self._broken:
            return False
        try:
            db.execute("REINDEX")
        except apsw.Error:
            return False
        return True

    def trim(self, acked_before: int, acked_max: int, claims_floors: Sequence[int]) -> bool:
        """Forget one slice by range: cheap, because both tables grow in order. True when there is more."""
        db = self._db
        if db is None or self._broken:
            return False
        self._regain(db)
        with db:
            oldest = "SELECT seq FROM acked ORDER BY seq LIMIT ?"
            old = f"DELETE FROM acked WHERE seq IN ({oldest}) AND (at < ? OR ?)"  # noqa: S608
            forgotten = _changed(db, old, (_SLICE, acked_before, self._acked > acked_max))
            self._acked -= forgotten
            claims = [_changed(db, _FORGET, (floor, _first_of_class(floor), _SLICE)) for floor in claims_floors]
        return _SLICE in (forgotten, *claims)


def _first_of_class(number: int) -> int:
    return number >> CLASS_SHIFT << CLASS_SHIFT


def _changed(db: apsw.Connection, statement: str, values: tuple[Any, ...]) -> int:
    before = db.total_changes()
    db.execute(statement, values)
    return db.total_changes() - before


def _roll_back(db: apsw.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _write(db: apsw.Connection, batch: Batch) -> None:
    """Run the statements of a batch; for one that was not prepared they are made here."""
    statements = _statements(batch) if batch.statements is None else batch.statements
    for statement, values in statements:
        db.execute(statement, values)


def _statements(batch: Batch) -> list[tuple[str, Any]]:
    """Make few statements of many rows, one table after the other."""
    out: list[tuple[str, Any]] = []
    for each in batch.topics:
        topic = TopicRow(*each)
        out.append((_TOPIC, (*topic, topic.sum)))
    _listed(out, "DELETE FROM topic WHERE id IN ", batch.topics_gone)
    out.extend(_settings_statement(number, settings) for number, settings in batch.settings.items())
    _many(out, _INSERT, ROW_WIDTH, columns_of(batch.rows))
    _many(out, "INSERT INTO dedup VALUES ", 4, [_claim_columns(claim) for claim in batch.claims])
    for dead in batch.dead:
        extra = (dead.reason, dead.at, dead.attempts, _pack_history(dead.history), dead.seq)
        out.append((_BURY, extra))
    _listed(out, "DELETE FROM msg WHERE seq IN ", [*batch.gone, *(dead.seq for dead in batch.dead)])
    _listed(out, "DELETE FROM st WHERE seq IN ", [seq for seq, state in batch.states.items() if state is None])
    states = [state.columns() for state in batch.states.values() if state is not None]
    _many(out, "INSERT OR REPLACE INTO st VALUES ", 9, states)
    _many(out, "INSERT OR REPLACE INTO acked VALUES ", 3, batch.acked)
    _listed(out, "DELETE FROM dead WHERE seq IN ", [*(row.seq for row in batch.dead_gone), *batch.redriven.values()])
    return out


def _settings_statement(number: int, settings: TopicSettings | None) -> tuple[str, Any]:
    if settings is None:
        return "DELETE FROM settings WHERE topic = ?", (number,)
    body = _pack_settings(settings)
    return "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (number, body, settings_sum(number, body))


def _ascend(seqs: Sequence[int]) -> bool:
    return all(map(lt, seqs, islice(seqs, 1, None)))


def _claim_columns(claim: IdemClaim) -> tuple[Any, ...]:
    return claim.n, claim.name, claim.at, _pack_claim(claim)


def _chunks(count: int) -> Iterator[int]:
    """Cut a count into few sizes that repeat, so that few statements are run and few are ever compiled."""
    for size in _SIZES:
        while size <= count:
            yield size
            count -= size


def _many(out: list[tuple[str, Any]], start: str, columns: int, rows: Sequence[tuple[Any, ...]]) -> None:
    at = 0
    for size in _chunks(len(rows)):
        bound = tuple(chain.from_iterable(rows[at : at + size]))
        out.append((start + schema.values(size, columns), bound))
        at += size


def _listed(out: list[tuple[str, Any]], start: str, seqs: Sequence[int]) -> None:
    if len(seqs) >= _RANGE_MIN and seqs[-1] - seqs[0] == len(seqs) - 1 and _ascend(seqs):
        # Each number between the first and the last is in the list: a range is found faster than its members.
        out.append((start.replace(" IN ", " BETWEEN ? AND ?"), (seqs[0], seqs[-1])))
        return
    at = 0
    for size in _chunks(len(seqs)):
        out.append((start + schema.listed(size), tuple(seqs[at : at + size])))
        at += size
