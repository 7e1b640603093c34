"""Tables and statements of the sqlite engine."""

from __future__ import annotations

from functools import cache
from typing import Final

FORMAT: Final = 1
ROW_COLUMNS: Final = "seq, slot, topic, key, ts, expires, size, head, payload, sum"
_JOINED: Final = ", ".join("m." + name for name in ROW_COLUMNS.split(", "))
_STATE: Final = "s.seq, s.kind, s.until, s.attempts, s.gen, s.span, s.hist, s.sum"
_FROM: Final = f"{_STATE} FROM msg m LEFT JOIN st s ON s.seq = m.seq"
WITH_STATE: Final = f"SELECT {_JOINED}, {_FROM}"
# Where many are read at once, payloads stay on the disk.
LIGHT_COLUMNS: Final = ROW_COLUMNS.replace("payload", "NULL")
LIGHT: Final = f"SELECT {_JOINED.replace('m.payload', 'NULL')}, {_FROM}"

_ROW_TABLE: Final = """(
    seq INTEGER PRIMARY KEY, slot INT NOT NULL, topic INT NOT NULL, key BLOB, ts INT NOT NULL, expires INT,
    size INT NOT NULL, head BLOB NOT NULL, payload BLOB NOT NULL, sum BLOB NOT NULL"""

TABLES: Final = (
    "CREATE TABLE meta (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
    "CREATE TABLE topic (id INTEGER PRIMARY KEY, name TEXT NOT NULL, sum BLOB NOT NULL)",
    f"CREATE TABLE msg {_ROW_TABLE})",
    # Windows and counts are read from the indexes alone: plain messages by place, keyed ones by key.
    "CREATE INDEX msg_plain ON msg (topic, seq, size) WHERE key IS NULL",
    "CREATE INDEX msg_keyed ON msg (topic, key, seq, size) WHERE key IS NOT NULL",
    "CREATE INDEX msg_expires ON msg (expires) WHERE expires IS NOT NULL",
    """CREATE TABLE st (seq INTEGER PRIMARY KEY, kind INT NOT NULL, until INT NOT NULL, attempts INT NOT NULL,
    gen INT NOT NULL, span INT NOT NULL, hist BLOB NOT NULL, sum BLOB NOT NULL)""",
    "CREATE INDEX st_until ON st (until) WHERE kind = 2",
    f"""CREATE TABLE dead {_ROW_TABLE}, reason TEXT NOT NULL, at INT NOT NULL, attempts INT NOT NULL,
    hist BLOB NOT NULL)""",
    "CREATE INDEX dead_topic ON dead (topic, seq, size)",
    "CREATE INDEX dead_at ON dead (at, seq, topic, size)",
    # Those that died of age go before the others when there are too many.
    "CREATE INDEX dead_ttl ON dead (at) WHERE reason = 'ttl'",
    "CREATE TABLE acked (seq INTEGER PRIMARY KEY, gen INT NOT NULL, at INT NOT NULL)",
    # Append only, in order of time; found through a table in RAM.
    "CREATE TABLE dedup (n INTEGER PRIMARY KEY, name BLOB NOT NULL, at INT NOT NULL, claim BLOB NOT NULL)",
)

COUNTS: Final = (
    "SELECT topic, count(*), sum(size) FROM msg INDEXED BY msg_plain WHERE key IS NULL GROUP BY topic",
    "SELECT topic, count(*), sum(size) FROM msg INDEXED BY msg_keyed WHERE key IS NOT NULL GROUP BY topic",
    "SELECT topic, count(*), sum(size) FROM dead INDEXED BY dead_topic GROUP BY topic",
    "SELECT m.topic, count(*) FROM st s JOIN msg m ON m.seq = s.seq WHERE s.kind = 2 GROUP BY m.topic",
)


@cache
def values(rows: int, columns: int) -> str:
    """Write the placeholders of a multi-row statement."""
    row = "(" + ",".join("?" * columns) + ")"
    return ",".join([row] * rows)


@cache
def listed(count: int) -> str:
    """Write the placeholders of a list."""
    return "(" + ",".join("?" * count) + ")"
