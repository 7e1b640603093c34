"""The data directory: used by one node, or by one of each service; holds the operator token and the addresses.

A node starts on a full disk too, so that its queues can be drained. The few bytes that it writes about itself find room
in a small file that is held back for them (`run/reserve`), or in the place of what the life before wrote.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

TOKEN_FILE: Final = "operator.token"  # noqa: S105 - the name of a file
_TOKEN_BYTES: Final = 32
_TOKEN_PREFIX: Final = "psp1_"  # noqa: S105 - what every token begins with
_TOKEN_CHARS_MIN: Final = 40
_RESERVE_FILE: Final = "reserve"
_RESERVE_BYTES: Final = 16 << 10


class DataDirRefused(Exception):
    """The data directory cannot be used; the message says why in one sentence."""


def new_token() -> str:
    """Make an operator token."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


class DataDir:
    """Holds the directory for the life of the node."""

    def __init__(self, path: Path, *, only: str | None = None) -> None:
        """Name the directory; `open` locks it, or the part that `only` one service uses."""
        self.path = path
        self.run = path / "run"
        self._only = only
        self._locks: list[IO[str]] = []
        # Whether the directory was not there before.
        self._made = False

    @property
    def _ending(self) -> Path:
        """Name the file that tells how the life before ended."""
        return self.run / f"{self._only or 'node'}.ending"

    def open(self) -> None:
        """Make the directory if needed and take its lock, or say who has it."""
        try:
            self._made = not self.path.exists()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.run.mkdir(mode=0o700, exist_ok=True)
            self._lock()
            self._hold_back()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if isinstance(error, FileExistsError | NotADirectoryError):
                reason = "a file is in the way"
            raise DataDirRefused(
                f"the data directory {self.path} cannot be used: {reason}. Choose another one with --data-dir DIR."
            ) from error
        self._check_private(self.path / TOKEN_FILE)

    def _lock(self) -> None:
        """Take the locks: a node locks the whole directory, a single service its own part if no node has the whole."""
        if self._only is None:
            self._take("node", fcntl.LOCK_EX)
        else:
            self._take("node", fcntl.LOCK_SH)
            self._take(self._only, fcntl.LOCK_EX)

    def _take(self, name: str, how: int) -> None:
        pid_file = os.fdopen(os.open(self.run / f"{name}.pid", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+")
        self._locks.append(pid_file)
        try:
            fcntl.flock(pid_file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder()
            self._let_go()
            raise DataDirRefused(
                f"{holder} is using the data directory {self.path}. "
                f"Stop it (penstock stop --data-dir {self.path}), or choose another one with --data-dir DIR."
            ) from None
        if how == fcntl.LOCK_EX:
            _write_over(pid_file.fileno(), f"{os.getpid()}\n")

    def _hold_back(self) -> None:
        """Keep some room for what has to be written when the disk is full; without any there is nothing to keep."""
        reserve = self.run / _RESERVE_FILE
        with suppress(OSError):
            if not reserve.exists() or reserve.stat().st_size < _RESERVE_BYTES:
                reserve.write_bytes(b"\1" * _RESERVE_BYTES)

    def _holder(self) -> str:
        """Name the holder of a lock: a file that cannot be locked for sharing has one owner, whose name is in it."""
        for name in sorted(self.run.glob("*.pid"), key=lambda file: file.stem != "node"):
            with name.open() as pid_file:
                try:
                    fcntl.flock(pid_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    what = "another node" if name.stem == "node" else f"svc-{name.stem}"
                    return f"{what} (process {pid_file.read().strip() or 'unknown'})"
        return "another process"

    def _let_go(self) -> None:
        for pid_file in self._locks:
            pid_file.close()
        self._locks = []

    def operator_token(self) -> str:
        """Read the operator token, making it (0600) at the first start."""
        file = self.path / TOKEN_FILE
        try:
            return self._read_token(file) or self._make_token(file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise DataDirRefused(f"the operator token {file} cannot be used: {reason}") from error

    def _read_token(self, file: Path) -> str:
        self._check_private(file)
        try:
            token = file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""
        if token and (not token.startswith(_TOKEN_PREFIX) or len(token) < _TOKEN_CHARS_MIN):
            raise DataDirRefused(f"{file} holds no operator token; delete it and a new one is made")
        return token

    @staticmethod
    def _check_private(token: Path) -> None:
        """Refuse a token that others may have read, whoever issued it."""
        with suppress(FileNotFoundError):
            found = token.stat().st_mode
            mode = stat.S_IMODE(found)
            if stat.S_ISREG(found) and mode & 0o077:
                raise DataDirRefused(
                    f"the operator token {token} can be read by others (mode {mode:04o}); make it 0600, and revoke it"
                )

    @staticmethod
    def _make_token(file: Path) -> str:
        token = new_token()
        _write_private(file, token + "\n")
        return token

    def write_ports(self, ports: dict[str, int], admin: dict[str, object]) -> None:
        """Write the addresses of the services, once all are bound, for the command line and the SDK."""
        self._ending.unlink(missing_ok=True)
        self._replace("ports.json", ports)
        self._replace("admin.json", admin)

    def write_door(self, door: dict[str, str | None]) -> None:
        """Write the address of the one service that runs alone."""
        self._ending.unlink(missing_ok=True)
        self._replace(f"{self._only}.json", door)

    def write_ending(self, told: dict[str, object]) -> None:
        """Write how the drain went, for whoever waits for the end of this process."""
        self._replace(self._ending.name, {"pid": os.getpid(), **told})

    def _replace(self, name: str, content: object) -> None:
        """Write a file so that readers see the old one or the new one, never half; on a full disk by the reserve."""
        text = json.dumps(content) + "\n"
        try:
            self._put(name, text)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            (self.run / _RESERVE_FILE).unlink(missing_ok=True)
            self._put(name, text)

    def _put(self, name: str, text: str) -> None:
        temporary = self.run / f"{name}.new"
        temporary.write_text(text, encoding="ascii")
        temporary.replace(self.run / name)

    def astray(self) -> str:
        """Tell whether the path still leads to the directory that was opened: empty, or what became of it.

        Somebody may move or remove the directory while the node runs. The path then leads nowhere, or to the directory
        of another node, and whatever is written by it is written to the wrong place.
        """
        if not self._locks:
            return ""
        lock = self._locks[-1]
        held = os.fstat(lock.fileno())
        with suppress(OSError):
            found = (self.run / f"{self._only or 'node'}.pid").stat()
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return ""
        where = self._now_at(lock)
        now = f" to {where}" if where else ", or removed,"
        return (
            f"the data directory {self.path} was moved{now} while the node ran. The node has ended at once, because it "
            "would write to the wrong place. Everything it had acknowledged is in the directory. "
            f"Start it there: penstock up --data-dir {where or 'DIR'}"
        )

    @staticmethod
    def _now_at(lock: IO[str]) -> str:
        """Return where the directory of an open lock file is now, where the system can tell."""
        try:
            file = Path(os.readlink(f"/proc/self/fd/{lock.fileno()}"))  # noqa: PTH115 - a link that is no path
        except OSError:
            return ""
        return str(file.parent.parent) if file.exists() else ""

    def undo(self) -> None:
        """Remove the directory after a start that failed, if that start made it and nothing but its own files is in it.

        What a service has written stays: it may have answered somebody for it.
        """
        if not self._made or not self._locks:
            return
        with suppress(OSError):
            if list(self.path.iterdir()) != [self.run]:
                return
            for name in (_RESERVE_FILE, "node.pid", f"{self._only}.pid"):
                (self.run / name).unlink(missing_ok=True)
            self.run.rmdir()
            self.path.rmdir()
        self._let_go()

    def close(self) -> None:
        """Remove what names a running node, or the service that runs alone, and give the lock back."""
        if self._locks and not self.astray():
            for name in ("ports", "admin") if self._only is None else (self._only,):
                (self.run / f"{name}.json").unlink(missing_ok=True)
            self._hold_back()
        # The pid files stay: whoever is waiting for a lock must wait for this very file.
        self._let_go()


def _write_over(descriptor: int, text: str) -> None:
    """Write a short text into the place of another, which needs no room of its own; a full disk keeps the old one."""
    with suppress(OSError):
        data = text.encode("ascii")
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def _write_private(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
