"""Where the issuer's state is kept: files in the data directory, or RAM alone. Blocking calls, made on a pool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol

import msgspec

from penstock.capability.following import Published
from penstock.kernel.errors import Integrity
from penstock.services.passport import audit
from penstock.services.passport.state import State

_AUDIT_BYTES_MAX: Final = 1 << 20


class Store(Protocol):
    """Keeps the state, what is published, the operator's token and the audit; every write is durable when it returns."""

    def load(self) -> State | None:
        """Return the state of the last run; None at the first start."""

    def save(self, state: State) -> None:
        """Keep a state."""

    def publish(self, published: Published) -> None:
        """Write what verifiers read."""

    def operator_token(self) -> str:
        """Return the operator's token, or nothing."""

    def keep_operator_token(self, token: str) -> None:
        """Keep the operator's token where only its owner can read it."""

    def audited(self) -> audit.Walked:
        """Walk the audit and return where it ends."""

    def append_audit(self, lines: bytes, *, sync: bool) -> None:
        """Append lines to the audit."""


class MemoryStore:
    """Keeps everything in RAM: nothing outlives the process, and no file is written."""

    def __init__(self) -> None:
        """Start empty."""
        self._state: State | None = None
        self._token = ""
        self.published: Published | None = None
        self.audit = bytearray()

    def load(self) -> State | None:
        """Return what was kept."""
        return self._state

    def save(self, state: State) -> None:
        """Keep a state."""
        self._state = state

    def publish(self, published: Published) -> None:
        """Keep what verifiers read."""
        self.published = published

    def operator_token(self) -> str:
        """Return the operator's token."""
        return self._token

    def keep_operator_token(self, token: str) -> None:
        """Keep the operator's token."""
        self._token = token

    def audited(self) -> audit.Walked:
        """Begin a new chain: there is none from before."""
        return audit.walk(b"")

    def append_audit(self, lines: bytes, *, sync: bool) -> None:
        """Keep the newest lines, whole ones, within a bound: RAM is all there is."""
        self.audit += lines
        if len(self.audit) > _AUDIT_BYTES_MAX:
            cut = self.audit.find(b"\n", len(self.audit) - _AUDIT_BYTES_MAX // 2) + 1
            del self.audit[:cut]


class FileStore:
    """Keeps everything in the data directory, readable by its owner alone."""

    def __init__(self, data_dir: Path) -> None:
        """Name the files; nothing is made before the first write."""
        self._folder = data_dir / "passport"
        self._state = self._folder / "state.json"
        self._public = self._folder / "public.json"
        self._token = data_dir / "operator.token"
        self._audit = data_dir / "audit" / "passport.jsonl"

    def load(self) -> State | None:
        """Read the state; one that cannot be read stops the start, because a lost floor would revive tokens."""
        try:
            data = self._state.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=State)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Integrity("The state of svc-passport is damaged.", reason="bad_state") from exc

    def save(self, state: State) -> None:
        """Write the state."""
        write_private(self._state, msgspec.json.encode(state))

    def publish(self, published: Published) -> None:
        """Write what verifiers read."""
        write_private(self._public, msgspec.json.encode(published))

    def operator_token(self) -> str:
        """Read the operator's token."""
        try:
            return self._token.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def keep_operator_token(self, token: str) -> None:
        """Write the operator's token."""
        write_private(self._token, token.encode("ascii") + b"\n")

    def audited(self) -> audit.Walked:
        """Walk the audit file and cut off a line that was never finished."""
        try:
            data = self._audit.read_bytes()
        except FileNotFoundError:
            self._audit.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return audit.walk(b"")
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(self._audit, whole)
        return audit.walk(data)

    def append_audit(self, lines: bytes, *, sync: bool) -> None:
        """Append to the audit file."""
        audit.append(self._audit, lines, sync=sync)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, durably, readable by its owner alone: a reader sees the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
