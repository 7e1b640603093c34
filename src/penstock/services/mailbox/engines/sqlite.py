"""The embedded engine: one SQLite file in WAL mode, one writer, readers beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.engines import schema
from penstock.services.mailbox.engines.engine import Corrupt, DiskFull, EngineFailed, Opened, StoredTopic
from penstock.services.mailbox.engines.sqlite_reads import SqliteReads
from penstock.services.mailbox.engines.wal import check_wal, fill_wal
from penstock.services.mailbox.rows import Claim, topic_sum

# One statement holds so many rows; larger batches take several.
_ROWS_MAX: Final = 256
_CHECKPOINT_IDLE_BYTES: Final = 1 << 20
_RESERVE_BYTES: Final = 4 << 20
_SLICE: Final = 1000
_FRAME_BYTES: Final = 4096 + 24
_BURY: Final = f"INSERT INTO dead SELECT {schema.ROW_COLUMNS}, ?, ?, ?, ? FROM msg WHERE seq = ?"  # noqa: S608
_pack_claim: Final = msgspec.msgpack.Encoder().encode
_pack_history: Final = msgspec.msgpack.Encoder().encode


class SqliteEngine(SqliteReads):
    """Messages in `mailbox.db`. Durability `fsync` syncs every commit, `os` leaves that to the system."""

    name = "sqlite"

    def __init__(
        self, directory: Path, *, fsync: bool = True, wal_bytes: int = 32 << 20, vfs: str | None = None
    ) -> None:
        """Keep everything in this directory; `vfs` names another file layer of SQLite, for tests."""
        super().__init__(directory / "mailbox.db", vfs)
        self.durable = True
        self._fsync = fsync
        self._wal_bytes_max = wal_bytes
        self._reserve = directory / "reserve"
        self._db: apsw.Connection | None = None
        self._broken = False
        self._acked = 0
        # Read by the metrics: how long checkpoints took, and how large the WAL is.
        self.checkpoint_s = 0.0
        self.checkpoints = 0
        self.wal_bytes = 0

    # --- life

    def open(self, delays_max: int) -> Opened:
        """Check the WAL before SQLite touches it, open, and read what is there."""
        self.close()
        self._broken = False
        if self._vfs is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_wal(self.path)
            fill_wal(self.path, self._wal_bytes_max)
        try:
            self._db = db = self._connect()
            self._set_pragmas(db)
            db.set_wal_hook(self._wal_grew)
            return self._begin(db, delays_max)
        except apsw.CorruptError as exc:
            raise Corrupt(f"The mailbox file is damaged: {exc}", where="file") from exc
        except (apsw.IOError, apsw.FullError) as exc:
            raise EngineFailed(f"The mailbox file cannot be used: {exc}") from exc

    def _set_pragmas(self, db: apsw.Connection) -> None:
        """Set each by its own statement and read it back: a mismatch refuses to start."""
        synchronous = ("FULL", 2) if self._fsync else ("NORMAL", 1)
        for name, text, want in (
            ("journal_mode", "WAL", "wal"),
            ("synchronous", *synchronous),
            ("wal_autocheckpoint", "0", 0),
            ("cache_size", "-16384", -16384),
            ("temp_store", "MEMORY", 2),
        ):
            _all(db, f"PRAGMA {name} = {text}")
            found = _all(db, f"PRAGMA {name}")
            if found != [(want,)]:
                raise EngineFailed(f"SQLite did not take {name} = {text}: {found}")

    def _begin(self, db: apsw.Connection, delays_max: int) -> Opened:
        with db:
            if not _all(db, "SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
                _create(db)
            meta: dict[str, Any] = {name: value for name, value in _all(db, "SELECT k, v FROM meta")}  # noqa: C416
            if meta.get("format") != schema.FORMAT:
                raise Corrupt(f"The mailbox file has format {meta.get('format')}, not {schema.FORMAT}.", where="file")
            boot = int(meta["boot"]) + 1
            db.execute("UPDATE meta SET v = ? WHERE k = 'boot'", (boot,))
        self._keep_reserve()
        return self._read_opened(db, boot, bytes(meta["key"]), delays_max)

    def _read_opened(self, db: apsw.Connection, boot: int, key: bytes, delays_max: int) -> Opened:
        numbers = [_all(db, f"SELECT max(seq) FROM {table}")[0][0] or 0 for table in ("msg", "dead", "acked")]  # noqa: S608
        self._acked = _all(db, "SELECT count(*) FROM acked")[0][0]
        states, later = self.open_states(delays_max)
        last_claim = _all(db, "SELECT max(n) FROM dedup")[0][0]
        topics = list(_topics(db))
        return Opened(
            boot=boot,
            key=key,
            seq=max(numbers),
            topic_number=max((topic.id for topic in topics), default=0),
            topics=topics,
            states=states,
            later=later,
            claims_next=0 if last_claim is None else last_claim + 1,
            claims=_all(db, "SELECT n, name, at FROM dedup ORDER BY n"),
        )

    def close(self) -> None:
        """Checkpoint and close, unless the file failed: then nothing more is written to it."""
        db, self._db = self._db, None
        self.close_reader()
        if db is None:
            return
        try:
            if not self._broken:
                _all(db, "PRAGMA wal_checkpoint(TRUNCATE)")
        except apsw.Error:
            self._broken = True
        db.close(force=True)

    # --- commit

    def prepare(self, batch: Batch) -> None:
        """Make the statements on the loop: the writer's thread then waits for SQLite and not for the interpreter."""
        batch.statements = _statements(batch)

    def commit(self, batch: Batch) -> None:
        """Write everything in one transaction; statements take many rows at once."""
        db = self._db
        if db is None or self._broken:
            raise EngineFailed("The engine is not open.")
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                _write(db, batch)
                db.execute("COMMIT")
            except apsw.FullError as exc:
                _roll_back(db)
                raise DiskFull from exc
        except apsw.Error as exc:
            self._broken = True
            raise EngineFailed(f"The commit failed: {exc}", outcome="unknown") from exc
        self._acked += len(batch.acked)
        if self.wal_bytes >= self._wal_bytes_max:
            self._checkpoint(db)

    def _wal_grew(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self.wal_bytes = pages * _FRAME_BYTES
        return apsw.SQLITE_OK

    def idle(self) -> None:
        """Checkpoint in a quiet moment, when there is something to gain."""
        db = self._db
        if db is not None and not self._broken and self.wal_bytes > _CHECKPOINT_IDLE_BYTES:
            self._checkpoint(db)

    def _checkpoint(self, db: apsw.Connection) -> None:
        before = self.monotonic()
        try:
            # Passive: it never waits for a reader; a log that is copied whole is overwritten by the next batch.
            _, frames, copied = _all(db, "PRAGMA wal_checkpoint(PASSIVE)")[0]
        except apsw.Error as exc:
            self._broken = True
            raise EngineFailed(f"The checkpoint failed: {exc}", outcome="unknown") from exc
        finally:
            self.checkpoint_s += self.monotonic() - before
            self.checkpoints += 1
        if frames == copied:
            # Otherwise a reader holds an old page, and the next batch tries again.
            self.wal_bytes = 0

    # --- a full disk

    def _keep_reserve(self) -> None:
        """Hold some bytes back, so that settlements still find room when the disk is full."""
        if self._vfs is not None or self._reserve.exists():
            return
        try:
            with self._reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        except OSError:
            self._reserve.unlink(missing_ok=True)

    def release_reserve(self) -> None:
        """Give the reserve to those who settle."""
        self._reserve.unlink(missing_ok=True)

    def trim(self, acked_before: int, acked_max: int, claims_floor: int) -> bool:
        """Forget one slice by range: cheap, because both tables grow in order. True when there is more."""
        db = self._db
        if db is None or self._broken:
            return False
        with db:
            oldest = "SELECT seq FROM acked ORDER BY seq LIMIT ?"
            old = f"DELETE FROM acked WHERE seq IN ({oldest}) AND (at < ? OR ?)"  # noqa: S608
            forgotten = _changed(db, old, (_SLICE, acked_before, self._acked > acked_max))
            self._acked -= forgotten
            first = "(SELECT min(n) FROM dedup)"
            claims = _changed(db, f"DELETE FROM dedup WHERE n < min(?, {first} + ?)", (claims_floor, _SLICE))  # noqa: S608
        return _SLICE in (forgotten, claims)


def _changed(db: apsw.Connection, statement: str, values: tuple[Any, ...]) -> int:
    before = db.total_changes()
    db.execute(statement, values)
    return db.total_changes() - before


def _all(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    return db.execute(statement, values).fetchall()


def _create(db: apsw.Connection) -> None:
    for statement in schema.TABLES:
        db.execute(statement)
    rows = {"format": schema.FORMAT, "boot": 0, "key": os.urandom(32)}
    for name, value in rows.items():
        db.execute("INSERT INTO meta VALUES (?, ?)", (name, value))


def _topics(db: apsw.Connection) -> Iterator[StoredTopic]:
    names: dict[int, str] = {}
    for number, name, total in _all(db, "SELECT id, name, sum FROM topic"):
        if topic_sum(number, name) != total:
            raise Corrupt(f"The name of topic {number} is damaged.", where="topic")
        names[number] = name
    plain, keyed, dead, delayed = ({row[0]: row[1:] for row in _all(db, statement)} for statement in schema.COUNTS)
    unnamed = (plain.keys() | keyed.keys() | dead.keys()) - names.keys()
    if unnamed:
        raise Corrupt(f"Messages belong to topics without a name: {sorted(unnamed)[:5]}.", where="topic")
    for number, name in names.items():
        some, more, ended = (table.get(number, (0, 0)) for table in (plain, keyed, dead))
        yield StoredTopic(
            number, name, some[0], more[0], some[1] + more[1] + ended[1], delayed.get(number, (0,))[0], *ended
        )


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
    for number, name in batch.topics:
        out.append(("INSERT OR REPLACE INTO topic VALUES (?, ?, ?)", (number, name, topic_sum(number, name))))
    _listed(out, "DELETE FROM topic WHERE id IN ", batch.topics_gone)
    _many(out, f"INSERT INTO msg ({schema.ROW_COLUMNS}) VALUES ", 10, [row.columns() for row in batch.rows])  # noqa: S608
    _many(out, "INSERT INTO dedup VALUES ", 4, [_claim_columns(claim) for claim in batch.claims])
    for dead in batch.dead:
        extra = (dead.reason, dead.at, dead.attempts, _pack_history(dead.history), dead.seq)
        out.append((_BURY, extra))
    _listed(out, "DELETE FROM msg WHERE seq IN ", [*batch.gone, *(dead.seq for dead in batch.dead)])
    _listed(out, "DELETE FROM st WHERE seq IN ", [seq for seq, state in batch.states.items() if state is None])
    states = [state.columns() for state in batch.states.values() if state is not None]
    _many(out, "INSERT OR REPLACE INTO st VALUES ", 8, states)
    _many(out, "INSERT OR REPLACE INTO acked VALUES ", 3, batch.acked)
    _listed(out, "DELETE FROM dead WHERE seq IN ", [*batch.dead_gone, *batch.redriven.values()])
    return out


def _claim_columns(claim: Claim) -> tuple[Any, ...]:
    return claim.n, claim.name, claim.at, _pack_claim(claim)


def _chunks(count: int) -> Iterator[int]:
    """Cut a count into sizes that repeat, so that few statements are ever compiled."""
    size = _ROWS_MAX
    while count:
        while size > count:
            size //= 2
        yield size
        count -= size


def _many(out: list[tuple[str, Any]], start: str, columns: int, rows: Sequence[tuple[Any, ...]]) -> None:
    at = 0
    for size in _chunks(len(rows)):
        bound = tuple(chain.from_iterable(rows[at : at + size]))
        out.append((start + schema.values(size, columns), bound))
        at += size


def _listed(out: list[tuple[str, Any]], start: str, seqs: Sequence[int]) -> None:
    at = 0
    for size in _chunks(len(seqs)):
        out.append((start + schema.listed(size), tuple(seqs[at : at + size])))
        at += size
