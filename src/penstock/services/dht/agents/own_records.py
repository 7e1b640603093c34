"""The node's identity, its own records and the contacts it knew, on disk. Called on a pool thread, one call at a time.

Under amnesia there is no directory and nothing is written. A damaged list of contacts is thrown away: it is only a
hint. A damaged identity or database is an error that the operator must see.
"""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.services.dht.core.ids import to_bytes

if TYPE_CHECKING:
    from pathlib import Path

SEED_BYTES: Final = 32
CANDIDATES_MAX: Final = 200
CANDIDATES_BYTES_MAX: Final = 64 << 10
KEEPERS_MAX: Final = 64
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS own (
  key BLOB PRIMARY KEY, addrs TEXT NOT NULL, ttl_s INTEGER NOT NULL, seq INTEGER NOT NULL, issued_ms INTEGER NOT NULL,
  published_ms INTEGER NOT NULL, withdrawn INTEGER NOT NULL, keepers TEXT NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """A record this node publishes, and where it stands in the cycle."""

    key: int
    addrs: tuple[str, ...]
    ttl_s: int
    seq: int
    issued_ms: int
    published_ms: int = 0
    withdrawn: bool = False
    keepers: tuple[str, ...] = ()  # `id@host:port` of the nodes that said they keep it

    def published(self, now_ms: int, keepers: tuple[str, ...]) -> OwnRecord:
        """Return it as it stands after it was sent out.

        Who kept it before stays in the list, behind the new ones: the nearest nodes change, an old keeper may hold its
        copy until the ttl ends, and a withdrawal must reach it.
        """
        kept = tuple(dict.fromkeys((*keepers, *self.keepers)))[:KEEPERS_MAX]
        return replace(self, published_ms=now_ms, keepers=kept)


class OwnFiles:
    """Files under `dht/`; with no directory everything is in memory."""

    def __init__(self, directory: Path | None, seed: bytes | None = None) -> None:
        """Touch nothing yet; `seed` is the identity of a node that keeps none on disk."""
        self._directory = directory
        self._seed = seed
        self._db: sqlite3.Connection | None = None

    def open(self) -> tuple[bytes, list[OwnRecord], list[tuple[str, int]]]:
        """Return the identity's seed, the own records and the contacts of the last run."""
        if self._directory is None:
            return self._seed or os.urandom(SEED_BYTES), [], []
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._db = sqlite3.connect(self._directory / "own.db", check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(_SCHEMA)
        return self._identity(self._directory / "identity.key"), self._records(), self._candidates()

    def _identity(self, path: Path) -> bytes:
        if not path.exists():
            _write_atomic(path, self._seed or os.urandom(SEED_BYTES), 0o600)
        seed = path.read_bytes()
        if len(seed) != SEED_BYTES:
            raise ValueError(f"{path} is damaged: an identity has {SEED_BYTES} bytes, not {len(seed)}")
        return seed

    def _records(self) -> list[OwnRecord]:
        assert self._db is not None
        rows = self._db.execute("SELECT key, addrs, ttl_s, seq, issued_ms, published_ms, withdrawn, keepers FROM own")
        return [
            OwnRecord(
                int.from_bytes(row[0], "big"),
                tuple(json.loads(row[1])),
                row[2],
                row[3],
                row[4],
                row[5],
                bool(row[6]),
                tuple(json.loads(row[7])),
            )
            for row in rows
        ]

    def _candidates(self) -> list[tuple[str, int]]:
        assert self._directory is not None
        path = self._directory / "candidates.json"
        try:
            if path.stat().st_size > CANDIDATES_BYTES_MAX:
                return []
            pairs = json.loads(path.read_bytes())
            return [(host, port) for host, port in pairs if isinstance(host, str) and type(port) is int][
                :CANDIDATES_MAX
            ]
        except (OSError, ValueError, TypeError):
            return []

    def put(self, records: list[OwnRecord]) -> None:
        """Write records, all or none; durable when it returns."""
        if self._db is None:
            return
        rows = [
            (
                to_bytes(r.key),
                json.dumps(r.addrs),
                r.ttl_s,
                r.seq,
                r.issued_ms,
                r.published_ms,
                r.withdrawn,
                json.dumps(r.keepers),
            )
            for r in records
        ]
        self._db.execute("BEGIN")
        try:
            self._db.executemany("INSERT OR REPLACE INTO own VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def remove(self, key: int) -> None:
        """Forget a record that was withdrawn and has expired."""
        if self._db is not None:
            self._db.execute("DELETE FROM own WHERE key = ?", (to_bytes(key),))

    def save_candidates(self, addresses: list[tuple[str, int]]) -> None:
        """Write where good contacts were, for the next start."""
        if self._directory is not None:
            text = json.dumps(addresses[:CANDIDATES_MAX]).encode()
            _write_atomic(self._directory / "candidates.json", text, 0o600)

    def close(self) -> None:
        """Close the database."""
        if self._db is not None:
            self._db.close()
            self._db = None


def _write_atomic(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole or not at all, and make sure of it before it counts."""
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
