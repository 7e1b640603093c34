"""The reading side of the sqlite engine: short statements on a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from penstock.contracts.mailbox import State
from penstock.kernel.errors import Integrity
from penstock.services.mailbox.engines import schema
from penstock.services.mailbox.engines.engine import (
    Corrupt,
    DeadPage,
    EngineFailed,
    TopicPage,
    as_loaded,
    state_shown,
)
from penstock.services.mailbox.rows import (
    PURGED_GEN,
    ROW_WIDTH,
    DeadRow,
    IdemClaim,
    Loaded,
    MessageRow,
    MessageState,
    StoredTrace,
    read_row,
    read_state,
)

_BUSY_MS: Final = 5000
PEEK_BYTES_MAX: Final = 4 << 20
_LAST: Final = (1 << 63) - 1
_read_claim: Final = msgspec.msgpack.Decoder(IdemClaim).decode
_read_history: Final = msgspec.msgpack.Decoder(tuple[tuple[int, str], ...]).decode
# A window leaves out what is leased or delayed: those come by their deadlines.
_WAITING: Final = "(s.kind IS NULL OR s.kind NOT IN (1, 2))"
# How many rows of the table are looked at, in order, before the indexes are asked where a topic's messages lie.
NEAR: Final = 4096
# The three kinds of living messages, each with its index.
_PLACES: Final = (
    "INDEXED BY msg_plain WHERE key IS NULL AND grp IS NULL",
    "INDEXED BY msg_group WHERE key IS NULL AND grp IS NOT NULL",
    "INDEXED BY msg_keyed WHERE key IS NOT NULL",
)
_NEXT_GROUP: Final = (
    f"{schema.LIGHT} WHERE m.key IS NULL AND m.topic = ? AND m.grp > ? ORDER BY m.topic, m.grp, m.seq LIMIT 1"
)
# A keyed message that waits out the delay of its topic is found by its key, and not by its time: until it is the first
# of its key its time says nothing.
_BY_TIME: Final = "s.kind = 2 AND (m.key IS NULL OR s.attempts > 0)"
_UNTIL: Final = ROW_WIDTH + 2
_BY_STATE: Final = "SELECT s.seq FROM st s CROSS JOIN msg m ON m.seq = s.seq WHERE m.topic = ?1"
_PEEKS: Final = {
    "inflight": f"{_BY_STATE} AND s.seq > ?4 AND s.kind = 1 AND ?3 ORDER BY s.seq LIMIT ?2",
    "delayed": f"{_BY_STATE} AND s.seq > ?4 AND s.kind = 2 AND s.until > ?3 ORDER BY s.seq LIMIT ?2",
    "dlq": "SELECT seq FROM dead WHERE topic = ?1 AND seq > ?4 AND ?3 ORDER BY seq LIMIT ?2",
}
_READY: Final = (
    "SELECT m.seq FROM msg m {} LEFT JOIN st s ON s.seq = m.seq WHERE m.topic = ?1 AND m.seq > ?4 AND {} "
    "AND (s.kind IS NULL OR s.kind NOT IN (1, 2) OR (s.kind = 2 AND s.until <= ?3)) ORDER BY m.seq LIMIT ?2"
)
_READY_NEAR: Final = _READY.format("NOT INDEXED", "m.seq <= ?5")
_READY_FAR: Final = (
    _READY.format("INDEXED BY msg_plain", "m.key IS NULL AND m.grp IS NULL"),
    _READY.format("INDEXED BY msg_group", "m.key IS NULL AND m.grp IS NOT NULL"),
    _READY.format("INDEXED BY msg_keyed", "m.key IS NOT NULL"),
)


def connect(path: Path, vfs: str | None, *, create: bool = False) -> apsw.Connection:
    """Open a connection to the file; `vfs` names another file layer of SQLite, for tests.

    Only the writer may create the file, after it was examined: a reader must not make one where a mailbox was lost.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    db = apsw.Connection(str(path), flags=flags, vfs=vfs)
    db.set_busy_timeout(_BUSY_MS)
    # The writer alone checkpoints, and never because somebody closes: a file that failed is left as it is.
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


class SqliteReads:
    """What can be asked of the file without writing to it. Owns the reading connection, and the damage that it met.

    Questions come from a thread of their own, while the writer's thread opens and closes the engine. SQLite refuses a
    connection that two threads use at once, so whoever uses it holds a lock for that one statement.
    """

    def __init__(self, path: Path, vfs: str | None) -> None:
        """Open the reading connection at the first question."""
        self.path = path
        self._vfs = vfs
        self._in_use = threading.Lock()
        self._reader: apsw.Connection | None = None
        # After a close nothing may be asked until the engine is opened again: a connection that a late question made
        # would leave a log behind a clean stop.
        self._closed = False
        # Damaged rows and states that were met; the service counts and reports them.
        self.damaged: list[int] = []
        self.damaged_states: list[int] = []

    def _ask(self, statement: str, values: tuple[Any, ...] = (), bytes_max: int = 1 << 62) -> list[tuple[Any, ...]]:
        """Run a short statement; `bytes_max` bounds the payloads of its rows, but it returns one row at least."""
        try:
            with self._in_use:
                return _within(self._connection().execute(statement, values), bytes_max)
        except (apsw.CorruptError, apsw.NotADBError) as exc:
            raise Corrupt(f"A page of the mailbox file cannot be read: {exc}", where="file") from exc
        except apsw.Error as exc:
            raise EngineFailed(f"The mailbox file cannot be read: {exc}") from exc

    def _connection(self) -> apsw.Connection:
        if self._closed:
            raise EngineFailed("The engine is not open.")
        if self._reader is None:
            self._reader = connect(self.path, self._vfs)
            self._reader.execute("PRAGMA cache_size = -8192").fetchall()
        return self._reader

    def open_reader(self) -> None:
        """Answer questions again after a close."""
        self._closed = False

    def close_reader(self) -> None:
        """End the reading connection. A statement that still runs is interrupted: nobody waits for its answer."""
        self._closed = True
        if (busy := self._reader) is not None:
            busy.interrupt()
        with self._in_use:
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close(force=True)

    def _loaded(self, found: list[tuple[Any, ...]]) -> list[Loaded]:
        return [(self._row(columns[:ROW_WIDTH]), self._state(columns[ROW_WIDTH:])) for columns in found]

    def _row(self, columns: tuple[Any, ...]) -> MessageRow:
        """Read a row; a damaged one keeps its place but has no payload, so it can never be delivered."""
        try:
            return read_row(columns)
        except Integrity:
            (seq, slot, topic, key, ts, expires, size), group = columns[:7], columns[10]
            self.damaged.append(seq)
            text = None if key is None else key.decode(errors="replace")
            return MessageRow(
                seq=seq, slot=slot & 4095, topic=topic, key=text, ts=ts, expires=expires, nonce=0, corr_id="",
                idem_key=None, attrs={}, payload_hash=bytes(32), payload=b"",
                left_bytes=size if isinstance(size, int) else 0,
                group=None if group is None else group.decode(errors="replace"),
            )  # fmt: skip

    def _state(self, columns: tuple[Any, ...]) -> MessageState | None:
        if columns[0] is None:
            return None
        try:
            return read_state(columns)
        except Integrity:
            # Without its state the message is plainly ready: delivered once more rather than lost.
            self.damaged_states.append(columns[0])
            return None

    # --- windows

    def open_states(self, delays_max: int) -> tuple[list[Loaded], int | None]:
        """Read every lease and the nearest delays."""
        leased = self._ask(f"{schema.LIGHT} WHERE s.kind = 1")
        delayed = self._ask(f"{schema.LIGHT} WHERE {_BY_TIME} ORDER BY s.until LIMIT ?", (delays_max + 1,))
        later = delayed[delays_max][_UNTIL] if len(delayed) > delays_max else None
        return self._loaded(leased + delayed[:delays_max]), later

    def window(self, topic: int, group: str | None, after: int, limit: int, bytes_max: int) -> list[Loaded]:
        """Read un-keyed messages of a group, or of none, that wait to be delivered, in order."""
        of, named = ("IS NULL", ()) if group is None else ("= ?", (group.encode(),))
        where = f"m.topic = ? AND m.key IS NULL AND m.grp {of} AND m.seq > ? AND {_WAITING} ORDER BY m.seq LIMIT ?"
        values = (topic, *named, after, limit)
        return self._loaded(self._ask(f"{schema.WITH_STATE} WHERE {where}", values, bytes_max))

    def group_heads(self, topic: int, after: str, limit: int) -> list[Loaded]:
        """Hop from group to group along the index."""
        heads: list[Loaded] = []
        group = after.encode()
        while len(heads) < limit and (found := self._ask(_NEXT_GROUP, (topic, group))):
            group = found[0][10]
            heads += self._loaded(found)
        return heads

    def next_of_key(self, topic: int, key: str, after: int, limit: int) -> list[Loaded]:
        """Read a key's next messages."""
        where = "m.topic = ? AND m.key = ? AND m.seq > ? ORDER BY m.seq LIMIT ?"
        values = (topic, key.encode(), after, limit)
        return self._loaded(self._ask(f"{schema.LIGHT} WHERE {where}", values))

    def key_heads(self, topic: int, after: str, limit: int) -> list[Loaded]:
        """Hop from key to key along the index."""
        heads: list[Loaded] = []
        key = after.encode()
        while len(heads) < limit:
            found = self._ask(
                f"{schema.LIGHT} WHERE m.topic = ? AND m.key > ? ORDER BY m.topic, m.key, m.seq LIMIT 1", (topic, key)
            )
            if not found:
                break
            key = found[0][3]
            heads += self._loaded(found)
        return heads

    def due(self, until: int, limit: int) -> tuple[list[Loaded], int | None]:
        """Read messages whose delay ends by then, and when the next one's does."""
        found = self._ask(f"{schema.LIGHT} WHERE {_BY_TIME} ORDER BY s.until LIMIT ?", (limit + 1,))
        over = [columns for columns in found[:limit] if columns[_UNTIL] <= until]
        later = found[len(over)][_UNTIL] if len(found) > len(over) else None
        return self._loaded(over), later

    def expired(self, now: int, limit: int) -> list[Loaded]:
        """Read messages whose time to live is over."""
        where = (
            "m.expires IS NOT NULL AND m.expires <= ? AND (s.kind IS NULL OR s.kind <> 1) ORDER BY m.expires LIMIT ?"
        )
        return self._loaded(self._ask(f"{schema.LIGHT} WHERE {where}", (now, limit)))

    def waiting_since(self, before: int, limit: int, after: int = 0) -> list[Loaded]:
        """Read the oldest messages behind a seq, as far as they were sent before then and are not leased."""
        oldest = "SELECT seq FROM msg WHERE seq > ? ORDER BY seq LIMIT ?"
        where = f"m.seq IN ({oldest}) AND m.ts < ? AND (s.kind IS NULL OR s.kind <> 1) ORDER BY m.seq"
        return self._loaded(self._ask(f"{schema.LIGHT} WHERE {where}", (after, limit, before)))

    # --- single messages

    def rows(self, seqs: Sequence[int]) -> dict[int, MessageRow]:
        """Read whole rows; one that is damaged or gone is missing from the answer."""
        rows: dict[int, MessageRow] = {}
        for seq in seqs:
            for columns in self._ask(f"SELECT {schema.ROW_COLUMNS} FROM msg WHERE seq = ?", (seq,)):  # noqa: S608
                try:
                    rows[seq] = read_row(columns)
                except Integrity:
                    self.damaged.append(seq)
        return rows

    def one(self, seq: int) -> Loaded | None:
        """Read a living message without its payload."""
        found = self._loaded(self._ask(f"{schema.LIGHT} WHERE m.seq = ?", (seq,)))
        return found[0] if found else None

    def trace(self, seq: int) -> StoredTrace:
        """Say what is known of a message."""
        for (gen,) in self._ask("SELECT gen FROM acked WHERE seq = ?", (seq,)):
            return StoredTrace("purged") if gen == PURGED_GEN else StoredTrace("acked", gen)
        for table in ("msg", "dead"):
            for columns in self._ask(f"SELECT {schema.LIGHT_COLUMNS} FROM {table} WHERE seq = ?", (seq,)):  # noqa: S608
                return StoredTrace("here", 0, self._row(columns).msg_id)
        return StoredTrace("none")

    def claim(self, n: int) -> IdemClaim | None:
        """Read a claim on an idem_key."""
        for (raw,) in self._ask("SELECT claim FROM dedup WHERE n = ?", (n,)):
            try:
                return _read_claim(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                raise Corrupt(f"Claim {n} on an idem_key cannot be read.", where="file") from exc
        return None

    # --- looking

    def peek(self, page: TopicPage) -> tuple[list[Loaded], int | None]:
        """Read messages of one state, oldest first, and say behind which seq the next page begins."""
        # One more than is shown tells whether there is a next page.
        values = (page.topic, page.limit + 1, page.now, page.after)
        seqs = self._ready(values) if page.state == "ready" else self._numbers(_PEEKS[page.state], values)
        shown = seqs[: page.limit]
        found = self._dead_peeked(page, shown) if page.state == "dlq" else self._living_peeked(shown)
        # What left between the two statements is not found, and a page of large messages ends before `shown` does.
        last = found[-1][0].seq if found else shown[-1] if shown else page.after
        return found, last if seqs and seqs[-1] > last else None

    def _living_peeked(self, seqs: list[int]) -> list[Loaded]:
        where = f"m.seq IN {schema.listed(len(seqs))} ORDER BY m.seq"
        return self._loaded(self._ask(f"{schema.WITH_STATE} WHERE {where}", tuple(seqs), PEEK_BYTES_MAX))

    def _dead_peeked(self, page: TopicPage, seqs: list[int]) -> list[Loaded]:
        up_to = seqs[-1] if seqs else page.after
        return list(map(as_loaded, self.dead(DeadPage(page.topic, None, page.after, page.limit, up_to=up_to))))

    def peek_one(self, topic: int, seq: int, now: int) -> tuple[Loaded, State] | None:
        """Read one message of a topic and its state. It may die meanwhile, so the living ones are looked at first."""
        for loaded in self._loaded(self._ask(f"{schema.WITH_STATE} WHERE m.seq = ? AND m.topic = ?", (seq, topic))):
            return loaded, state_shown(loaded[1], now)
        for found in self.dead(DeadPage(topic, None, seq - 1, 1, up_to=seq)):
            return as_loaded(found), "dlq"
        return None

    def _ready(self, values: tuple[int, int, int, int]) -> list[int]:
        """Find the next messages of a topic that wait, also those of a small one behind the backlog of others."""
        edge = self._edge(values[3])
        near = self._numbers(_READY_NEAR, (*values, edge))
        if edge == _LAST or len(near) == values[1]:
            return near
        return sorted(seq for statement in _READY_FAR for seq in self._numbers(statement, values))[: values[1]]

    def _numbers(self, statement: str, values: tuple[Any, ...]) -> list[int]:
        return [seq for (seq,) in self._ask(statement, values)]

    def _edge(self, after: int) -> int:
        """Say how far to look in the table itself from there on."""
        edge = self._numbers("SELECT seq FROM msg WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?", (after, NEAR))
        return edge[0] if edge else _LAST

    def oldest(self, topic: int) -> int | None:
        """Say when the oldest living message of a topic was sent."""
        firsts = ", ".join(f"(SELECT min(seq) FROM msg {each} AND topic = ?1)" for each in _PLACES)  # noqa: S608
        statement = f"SELECT ts FROM msg WHERE seq IN ({firsts}) ORDER BY seq LIMIT 1"  # noqa: S608
        found = self._ask(statement, (topic,))
        return found[0][0] if found else None

    def oldest_of_all(self) -> tuple[int, int] | None:
        """Say in which topic the oldest living message of all is, and when it was sent."""
        found = self._ask("SELECT topic, ts FROM msg NOT INDEXED ORDER BY seq LIMIT 1", ())
        return (found[0][0], found[0][1]) if found else None

    def living(self, topic: int, after: int, up_to: int, limit: int) -> list[Loaded]:
        """Read a topic's living messages in a range of seq, leased or not."""
        edge = self._edge(after)
        found = self._living(topic, after, min(edge, up_to), limit)
        if found or edge >= up_to:
            return found
        asked = [f"SELECT min(seq) FROM msg {each} AND topic = ? AND seq > ?" for each in _PLACES]  # noqa: S608
        first = min((seq for text in asked for seq in self._numbers(text, (topic, edge)) if seq), default=_LAST)
        return self._living(topic, first - 1, min(self._edge(first), up_to), limit)

    def _living(self, topic: int, after: int, up_to: int, limit: int) -> list[Loaded]:
        where = "m.topic = ? AND m.seq > ? AND m.seq <= ? ORDER BY m.seq LIMIT ?"
        return self._loaded(self._ask(f"{schema.LIGHT} WHERE {where}", (topic, after, up_to, limit)))

    # --- dead letters

    def dead(self, page: DeadPage) -> list[tuple[MessageRow, DeadRow]]:
        """Read dead letters, oldest first."""
        columns = schema.ROW_COLUMNS if page.payloads else schema.LIGHT_COLUMNS
        chosen = f"{columns}, reason, at, attempts, hist"
        statement = f"SELECT {chosen} FROM dead WHERE {_dead_where(page)} ORDER BY seq LIMIT ?4"  # noqa: S608
        found = self._ask(statement, _dead_values(page), PEEK_BYTES_MAX if page.payloads else 1 << 62)
        return [(self._row(columns[:ROW_WIDTH]), self._dead(columns)) for columns in found]

    def _dead(self, columns: tuple[Any, ...]) -> DeadRow:
        try:
            history = _read_history(columns[ROW_WIDTH + 3])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.damaged.append(columns[0])
            history = ()
        reason, at, attempts = columns[ROW_WIDTH : ROW_WIDTH + 3]
        return DeadRow(columns[0], reason, at, attempts, history)

    def dead_count(self, page: DeadPage) -> int:
        """Count dead letters, at most `limit`."""
        statement = f"SELECT count(*) FROM (SELECT 1 FROM dead WHERE {_dead_where(page)} LIMIT ?4)"  # noqa: S608
        return int(self._ask(statement, _dead_values(page))[0][0])

    def dead_groups(self, limit: int) -> list[tuple[int, str, int, int, int]]:
        """Count dead letters by topic and reason, the largest groups first."""
        statement = "SELECT topic, reason, count(*), min(at), max(at) FROM dead GROUP BY 1, 2 ORDER BY 3 DESC LIMIT ?"
        return [
            (topic, reason, count, first, last) for topic, reason, count, first, last in self._ask(statement, (limit,))
        ]

    def dead_old(self, before: int, limit: int) -> list[MessageRow]:
        """Read dead letters that died before then, those that died of age first, then the oldest; without payloads."""
        found: list[tuple[Any, ...]] = []
        for where in ("reason = 'ttl'", "reason <> 'ttl'"):
            chosen = f"{where} AND at < ? ORDER BY at LIMIT ?"
            statement = f"SELECT {schema.LIGHT_COLUMNS} FROM dead WHERE {chosen}"  # noqa: S608
            found += self._ask(statement, (before, limit - len(found)))
        return [self._row(columns) for columns in found]

    # --- damage

    def check_slice(self, table: str, after: int) -> int | None:
        """Read some rows of a table whole and note the damaged ones; returns the last seq, None at the end."""
        columns = schema.ROW_COLUMNS if self.format() == schema.FORMAT else schema.OLD_ROW_COLUMNS
        statement = f"SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT 1000"  # noqa: S608
        found = self._ask(statement, (after,), PEEK_BYTES_MAX)
        for row in found:
            self._row(row)
        return found[-1][0] if found else None

    def format(self) -> int:
        """Return the format of the file: one of an earlier format is looked at as it is, before it is migrated."""
        found = self._ask("SELECT v FROM meta WHERE k = 'format'")
        return int(found[0][0]) if found else 0

    def integrity(self, limit: int) -> list[str]:
        """Let SQLite check its pages, and every index against its table; one statement sees one moment."""
        found = self._ask(f"PRAGMA integrity_check({limit})")
        return [str(text) for (text,) in found if text != "ok"]

    def last_of(self, after: int, limit: int) -> int:
        """Walk over the next messages, in the table itself; returns the last one's seq, or `after` at the end."""
        found = self._ask("SELECT seq, length(head) FROM msg NOT INDEXED WHERE seq > ? LIMIT ?", (after, limit))
        return int(found[-1][0]) if found else after


def _within(found: apsw.Cursor, bytes_max: int) -> list[tuple[Any, ...]]:
    if bytes_max == 1 << 62:
        return found.fetchall()
    rows: list[tuple[Any, ...]] = []
    total = 0
    for columns in found:
        total += columns[6]
        if total > bytes_max and rows:
            break
        rows.append(columns)
    # A statement that is not run to its end would keep the log from being overwritten.
    found.close()
    return rows


def _dead_where(page: DeadPage) -> str:
    """Choose dead letters as `reason_matches` does: all of a kind lie between its name with a colon and the next."""
    topic = "?1 IS NULL" if page.topic is None else "topic = ?1"
    reason = "(?2 IS NULL OR reason = ?2 OR (reason >= ?6 AND reason < ?7))"
    return f"{topic} AND {reason} AND seq > ?3 AND seq <= ?5"


def _dead_values(page: DeadPage) -> tuple[Any, ...]:
    kind = None if page.reason is None or ":" in page.reason else page.reason
    first, end = (None, None) if kind is None else (f"{kind}:", f"{kind};")
    return page.topic, page.reason, page.after, page.limit, page.up_to, first, end
