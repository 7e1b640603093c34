"""The data directory: one node at a time, the operator token, and where the services listen."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from pathlib import Path
from typing import IO, Final

TOKEN_FILE: Final = "operator.token"  # noqa: S105 - the name of a file
_TOKEN_BYTES: Final = 32
_TOKEN_PREFIX: Final = "psp1_"  # noqa: S105 - what every token begins with
_TOKEN_CHARS_MIN: Final = 40


class DataDirRefused(Exception):
    """The data directory cannot be used; the message says why in one sentence."""


def new_token() -> str:
    """Make an operator token."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


class DataDir:
    """Holds the directory for the life of the node."""

    def __init__(self, path: Path) -> None:
        """Name the directory; `open` takes it."""
        self.path = path
        self.run = path / "run"
        self._pid_file: IO[str] | None = None

    def open(self) -> None:
        """Make the directory if needed and take its lock, or say who has it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.run.mkdir(mode=0o700, exist_ok=True)
            self._pid_file = self._lock()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DataDirRefused(f"the data directory {self.path} cannot be used: {reason}") from error

    def _lock(self) -> IO[str]:
        pid_file = (self.run / "node.pid").open("a+")
        try:
            fcntl.flock(pid_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid_file.seek(0)
            owner = pid_file.read().strip() or "unknown"
            pid_file.close()
            raise DataDirRefused(f"another node (process {owner}) is using the data directory {self.path}") from None
        pid_file.truncate(0)
        pid_file.write(f"{os.getpid()}\n")
        pid_file.flush()
        return pid_file

    def operator_token(self) -> str:
        """Read the operator token, making it (0600) at the first start."""
        file = self.path / TOKEN_FILE
        try:
            return self._read_token(file) or self._make_token(file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise DataDirRefused(f"the operator token {file} cannot be used: {reason}") from error

    @staticmethod
    def _read_token(file: Path) -> str:
        try:
            token = file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""
        mode = stat.S_IMODE(file.stat().st_mode)
        if mode & 0o077:
            raise DataDirRefused(f"the operator token {file} can be read by others (mode {mode:04o}); make it 0600")
        if token and (not token.startswith(_TOKEN_PREFIX) or len(token) < _TOKEN_CHARS_MIN):
            raise DataDirRefused(f"{file} holds no operator token; delete it and a new one is made")
        return token

    @staticmethod
    def _make_token(file: Path) -> str:
        token = new_token()
        _write_private(file, token + "\n")
        return token

    def write_ports(self, ports: dict[str, int], admin: dict[str, object]) -> None:
        """Say where the services listen, once all are bound, and how the command line gets in."""
        self._replace("ports.json", ports)
        self._replace("admin.json", admin)

    def _replace(self, name: str, content: object) -> None:
        """Write a file so that readers see the old one or the new one, never half."""
        temporary = self.run / f"{name}.new"
        temporary.write_text(json.dumps(content) + "\n", encoding="ascii")
        temporary.replace(self.run / name)

    def close(self) -> None:
        """Remove what names a running node and give the lock back."""
        if self._pid_file is None:
            return
        # The pid file stays: whoever is waiting for its lock must wait for this very file.
        for name in ("ports.json", "admin.json"):
            (self.run / name).unlink(missing_ok=True)
        self._pid_file.close()
        self._pid_file = None


def _write_private(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
