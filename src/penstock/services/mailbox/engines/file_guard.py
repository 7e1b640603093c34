"""Watches over the files of one open mailbox.

Nothing is opened unexamined, and nothing is acknowledged into a lost file.

The engine calls it at five moments, always on its writer's thread: before SQLite opens, once it is open, after every
commit, after a checkpoint that copied the whole log, and after a close in good order.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.kernel.clock import boot_id, uptime
from penstock.services.mailbox.engines.engine import Corrupt, EngineFailed
from penstock.services.mailbox.engines.files import (
    DATABASE,
    MARK,
    FilesFound,
    LogRecord,
    RecordFile,
    examine,
    identity,
    leave_mark,
    put_aside,
)
from penstock.services.mailbox.engines.wal import sync_directory
from penstock.services.mailbox.steady_clock import ClockStamp

_SALTS_AT: Final = 16


class FileGuard:
    """The record, the marks and the identities of the files."""

    def __init__(self, directory: Path, *, durable: bool, outer_mark: Path | None = None) -> None:
        """Guard this directory. `durable`: every commit is synced, so a log that is short is damage.

        `outer_mark` is the second mark, for a directory that is removed as a whole.
        """
        self._directory = directory
        self._database = directory / DATABASE
        self._log = Path(f"{self._database}-wal")
        self._durable = durable
        self._outer_mark = outer_mark
        self._machine = boot_id()
        self._record = RecordFile(directory)
        self._log_descriptor = self._database_descriptor = -1
        self._known: tuple[tuple[int, int], tuple[int, int]] | None = None
        self._lived_here = False
        # What the last life left on record when this one began; the clock is continued from it.
        self.before: LogRecord | None = None

    def prepare(self) -> str:
        """Examine everything and make the directory; returns what is wrong where that is no reason to refuse.

        Raises Corrupt, having changed nothing, when opening the files would lose something in silence.
        """
        self._forget()
        if not self._directory.exists():
            self._make_directory()
        found = examine(self._directory, self._outer_mark)
        if self._lived_here and found.fresh:
            found = FilesFound(damage=f"{DATABASE} is gone, and this node was using it. Nothing was changed.")
        if found.damage and self._durable:
            raise Corrupt(found.damage, where=found.where)
        if found.damage and found.loss_unknown and found.where == "file":
            # Without a sync for each commit a power cut may do this. What is there is kept, and a new file begun.
            put_aside(self._directory)
        self.before = found.record
        return found.damage

    def _make_directory(self) -> None:
        outer = self._outer_mark
        if self._lived_here or (outer is not None and outer.exists()):
            detail = f"The directory {self._directory} is gone, and a mailbox lived there. Put it back."
            detail += f" To begin with an empty mailbox, remove {outer}." if outer is not None else ""
            raise Corrupt(detail, where="file")
        self._directory.mkdir(mode=0o700, parents=True)
        sync_directory(self._directory.parent)

    def begin(self) -> None:
        """Say durably that a life is under way, before SQLite opens anything for writing."""
        self._record.begin(self.before or LogRecord())

    def check_age(self, life: int, checkpoints: int) -> None:
        """Refuse a database that is older than the record beside it: somebody put an earlier copy in its place."""
        before = self.before
        if self._durable and before is not None and (life < before.life or checkpoints < before.checkpoints):
            raise Corrupt(
                f"{DATABASE} is of an earlier time than the record beside it. Nothing was changed.", where="file"
            )

    def opened(self, life: int) -> None:
        """Remember which files are in use, and by which life."""
        self._lived_here = True
        for mark in (self._directory / MARK, self._outer_mark):
            if mark is not None:
                leave_mark(mark)
        self._log_descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        self._database_descriptor = os.open(self._database, os.O_RDONLY | os.O_CLOEXEC)
        self._known = (identity(self._database), identity(self._log))
        self._record.write(replace(self._record.last, life=life))

    def last_written(self) -> ClockStamp | None:
        """Return when the life before this one wrote last, if it left that on record."""
        before = self.before
        if before is None or not before.wall_ms:
            return None
        return ClockStamp(before.wall_ms, before.uptime_ms, before.machine if any(before.machine) else b"")

    def verify(self) -> None:
        """Raise when a file was removed, moved or replaced under the running engine."""
        if self._known is not None and (identity(self._database), identity(self._log)) != self._known:
            raise EngineFailed(
                "The mailbox's files were removed or replaced while they were in use.", outcome="unknown"
            )

    def committed(self, frames: int, wall_ms: int) -> None:
        """Note durable progress: the log holds so many frames.

        Raises when it is not the file under its name any more.
        """
        self.verify()
        salts = os.pread(self._log_descriptor, 8, _SALTS_AT)
        self._record.write(
            replace(
                self._record.last,
                salts=(int.from_bytes(salts[:4], "big"), int.from_bytes(salts[4:], "big")),
                frames=frames,
                wall_ms=wall_ms,
                uptime_ms=int(uptime() * 1000),
                machine=self._machine,
            )
        )

    def write_out(self) -> None:
        """Have the system write what it holds of the database file. Called beside commits."""
        os.fdatasync(self._database_descriptor)

    def checkpointed(self, number: int) -> None:
        """Note that the database holds all of the log, by a checkpoint whose number is stored in it."""
        self._record.write(replace(self._record.last, frames=0, checkpoints=number))

    def closed(self) -> None:
        """Note the end in good order, and take the empty log away."""
        for path in (self._log, Path(f"{self._database}-shm")):
            if path.exists() and (path != self._log or not path.stat().st_size):
                path.unlink()
        self._record.end()
        self._forget()

    def abandon(self) -> None:
        """Let go without a word: the record goes on to say that a life is under way."""
        self._record.close()
        self._forget()

    def _forget(self) -> None:
        """Close the descriptors. To close one of the database ends SQLite's locks on it, so this comes after SQLite."""
        self._known = None
        descriptors = (self._log_descriptor, self._database_descriptor)
        self._log_descriptor = self._database_descriptor = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)
