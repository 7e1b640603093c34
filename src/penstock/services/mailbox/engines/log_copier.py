"""Copies the log into the database beside the commits, so that the checkpoint between two of them has little to do.

SQLite lets a passive checkpoint run on one connection while another commits. It syncs the log and copies what was
committed when it began. The checkpoint that follows, with no commit beside it, copies the few pages that came since and
syncs the whole database file; only then may the log begin anew. So nothing changes in what makes a commit durable, nor
in what makes the log dispensable.

If no commit came meanwhile, the copy is whole, and SQLite would let the next commit begin the log anew: before the
record beside the database says so. Therefore a second connection keeps a read open until the checkpoint. While it lasts
SQLite goes on with the log that there is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from penstock.services.mailbox.engines.opening import fetch
from penstock.services.mailbox.engines.sqlite_reads import connect

_READ: Final = "SELECT count(*) FROM meta"


class LogCopier:
    """Two connections that change nothing. Its engine sees to it that nobody else copies at the same time."""

    def __init__(self, path: Path, vfs: str | None) -> None:
        self._path = path
        self._vfs = vfs
        self._db: apsw.Connection | None = None
        self._holder: apsw.Connection | None = None
        # The engine has had the log copied as far as it went. The checkpoint takes this back.
        self.done = False
        # A copy went wrong: what the database holds of it is unknown. Only a new life takes this back.
        self.failed = False

    def open(self) -> None:
        """Begin, for an engine that was just opened."""
        self._db, self._holder = (connect(self._path, self._vfs) for _ in range(2))
        for connection in (self._db, self._holder):
            # The first read opens the log: now, and not beside the commits.
            fetch(connection, _READ)
        # As on the connection that commits: the log is synced before it is copied.
        fetch(self._db, "PRAGMA synchronous = FULL")

    @property
    def ready(self) -> bool:
        """Tell whether there is something to copy."""
        return self._db is not None and not self.done and not self.failed

    def copy(self) -> None:
        """Copy what was committed so far, and hold the log."""
        assert self._db is not None
        assert self._holder is not None
        self._holder.execute("BEGIN")
        fetch(self._holder, _READ)
        fetch(self._db, "PRAGMA wal_checkpoint(PASSIVE)")

    def release(self) -> None:
        """Let the log begin anew after the checkpoint that follows."""
        self.done = False
        if self._holder is not None and self._holder.in_transaction:
            self._holder.execute("ROLLBACK")

    def close(self) -> None:
        """End the connections."""
        self.done = self.failed = False
        connections, self._db, self._holder = (self._db, self._holder), None, None
        for connection in connections:
            if connection is not None:
                connection.close(force=True)
