"""Tables and statements of the sqlite engine."""

from __future__ import annotations

from functools import cache
from typing import Final

FORMAT: Final = 2
ROW_COLUMNS: Final = "seq, slot, topic, key, ts, expires, size, head, payload, sum, grp"
OLD_ROW_COLUMNS: Final = ROW_COLUMNS.replace("grp", "NULL")
DEAD_COLUMNS: Final = f"{ROW_COLUMNS}, reason, at, attempts, hist"
_JOINED: Final = ", ".join("m." + name for name in ROW_COLUMNS.split(", "))
_STATE: Final = "s.seq, s.kind, s.until, s.attempts, s.gen, s.span, s.hist, s.sum, s.first_at"
_FROM: Final = f"{_STATE} FROM msg m LEFT JOIN st s ON s.seq = m.seq"
WITH_STATE: Final = f"SELECT {_JOINED}, {_FROM}"
# Where many are read at once, payloads stay on the disk.
LIGHT_COLUMNS: Final = ROW_COLUMNS.replace("payload", "NULL")
LIGHT: Final = f"SELECT {_JOINED.replace('m.payload', 'NULL')}, {_FROM}"

_ROW_TABLE: Final = """(
    seq INTEGER PRIMARY KEY, slot INT NOT NULL, topic INT NOT NULL, key BLOB, ts INT NOT NULL, expires INT,
    size INT NOT NULL, head BLOB NOT NULL, payload BLOB NOT NULL, sum BLOB NOT NULL"""

# Columns that format 2 added stand at the end of their tables, where a migration can only put them.
_GROUP: Final = "grp BLOB"
_FIRST_AT: Final = "first_at INT NOT NULL DEFAULT 0"
_FORM: Final = "form INT NOT NULL DEFAULT 1"
_GENERATION: Final = "gen INT NOT NULL DEFAULT 0"
_SETTINGS: Final = "CREATE TABLE settings (topic INTEGER PRIMARY KEY, body BLOB NOT NULL, sum BLOB NOT NULL)"
# Windows and counts are read from the indexes alone: plain messages by place, grouped and keyed ones by group and key.
_PLAIN: Final = "CREATE INDEX msg_plain ON msg (topic, seq, size) WHERE key IS NULL AND grp IS NULL"
_GROUPED: Final = "CREATE INDEX msg_group ON msg (topic, grp, seq, size) WHERE key IS NULL AND grp IS NOT NULL"

TABLES: Final = (
    "CREATE TABLE meta (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
    f"CREATE TABLE topic (id INTEGER PRIMARY KEY, name TEXT NOT NULL, sum BLOB NOT NULL, {_FORM}, {_GENERATION})",
    _SETTINGS,
    f"CREATE TABLE msg {_ROW_TABLE}, {_GROUP})",
    _PLAIN,
    _GROUPED,
    "CREATE INDEX msg_keyed ON msg (topic, key, seq, size) WHERE key IS NOT NULL",
    "CREATE INDEX msg_expires ON msg (expires) WHERE expires IS NOT NULL",
    f"""CREATE TABLE st (seq INTEGER PRIMARY KEY, kind INT NOT NULL, until INT NOT NULL, attempts INT NOT NULL,
    gen INT NOT NULL, span INT NOT NULL, hist BLOB NOT NULL, sum BLOB NOT NULL, {_FIRST_AT})""",
    "CREATE INDEX st_until ON st (until) WHERE kind = 2",
    f"""CREATE TABLE dead {_ROW_TABLE}, reason TEXT NOT NULL, at INT NOT NULL, attempts INT NOT NULL,
    hist BLOB NOT NULL, {_GROUP})""",
    "CREATE INDEX dead_topic ON dead (topic, seq, size)",
    "CREATE INDEX dead_at ON dead (at, seq, topic, size)",
    # Those that died of age go before the others when there are too many.
    "CREATE INDEX dead_ttl ON dead (at) WHERE reason = 'ttl'",
    "CREATE TABLE acked (seq INTEGER PRIMARY KEY, gen INT NOT NULL, at INT NOT NULL)",
    # Found through a table in RAM. The upper bits of `n` are the class of its ledger, see `claims`: within one class it
    # is append only, in order of time.
    "CREATE TABLE dedup (n INTEGER PRIMARY KEY, name BLOB NOT NULL, at INT NOT NULL, claim BLOB NOT NULL)",
)

# What makes a file of format 1 one of format 2. Rows are not rewritten: what they lack has a default.
FROM_1_TO_2: Final = (
    f"ALTER TABLE topic ADD COLUMN {_FORM}",
    f"ALTER TABLE topic ADD COLUMN {_GENERATION}",
    _SETTINGS,
    f"ALTER TABLE msg ADD COLUMN {_GROUP}",
    f"ALTER TABLE dead ADD COLUMN {_GROUP}",
    f"ALTER TABLE st ADD COLUMN {_FIRST_AT}",
    "DROP INDEX msg_plain",
    _PLAIN,
    _GROUPED,
    "UPDATE meta SET v = 2 WHERE k = 'format'",
)

COUNTS: Final = (
    "SELECT topic, count(*), sum(size) FROM msg INDEXED BY msg_plain WHERE key IS NULL AND grp IS NULL GROUP BY topic",
    (
        "SELECT topic, count(*), sum(size) FROM msg INDEXED BY msg_group WHERE key IS NULL AND grp IS NOT NULL "
        "GROUP BY topic"
    ),
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
