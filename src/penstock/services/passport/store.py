"""Where the issuer's state is kept: files in the data directory, or RAM alone. Blocking calls, made on a pool."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, Protocol

import msgspec

from penstock.capability.following import PublishedTrust
from penstock.kernel.errors import Conflict, Integrity
from penstock.services.passport import audit
from penstock.services.passport.state import IssuerState

_AUDIT_BYTES_MAX: Final = 1 << 20
_BLOCK_BYTES: Final = 64 * 1024
# Half a second of walking.
_WALKED_WHOLE_BYTES: Final = 48 << 20


class PassportStore(Protocol):
    """Keeps the state, what is published, the operator's token and the audit; every write is durable when it returns."""

    def load(self) -> IssuerState | None:
        """Return the state of the last run, None at the first start; from now on it is nobody else's."""

    def save(self, state: IssuerState) -> None:
        """Keep a state."""

    def publish(self, published: PublishedTrust) -> None:
        """Write what verifiers read."""

    def operator_token(self) -> str:
        """Return the operator's token, or nothing."""

    def keep_operator_token(self, token: str) -> None:
        """Keep the operator's token where only its owner can read it."""

    def audited(self) -> audit.Walked:
        """Walk the audit and return where it ends."""

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        """Append lines to the audit, which then ends like this; `sync` waits for the disk."""

    def close(self) -> None:
        """Let others have it."""


class MemoryStore:
    """Keeps everything in RAM: nothing outlives the process, and no file is written."""

    def __init__(self) -> None:
        """Start empty."""
        self._state: IssuerState | None = None
        self._token = ""
        self.published: PublishedTrust | None = None
        self.audit = bytearray()

    def load(self) -> IssuerState | None:
        """Return what was kept."""
        return self._state

    def save(self, state: IssuerState) -> None:
        """Keep a state."""
        self._state = state

    def publish(self, published: PublishedTrust) -> None:
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
        return audit.START

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        """Keep the newest lines, whole ones, within a bound: RAM is all there is."""
        self.audit += lines
        if len(self.audit) > _AUDIT_BYTES_MAX:
            cut = self.audit.find(b"\n", len(self.audit) - _AUDIT_BYTES_MAX // 2) + 1
            del self.audit[:cut]

    def close(self) -> None:
        """Let nothing go: it ends with the process."""


class FileStore:
    """Keeps everything in the data directory, readable by its owner alone."""

    def __init__(self, data_dir: Path) -> None:
        """Name the files; nothing is made before the first write."""
        self._folder = data_dir / "passport"
        self._state = self._folder / "state.json"
        self._public = self._folder / "public.json"
        self._token = data_dir / "operator.token"
        self._audit = data_dir / "audit" / "passport.jsonl"
        self._mark = data_dir / "audit" / "passport.mark"
        self._lock: int | None = None

    def load(self) -> IssuerState | None:
        """Read the state; one that cannot be read stops the start, because a lost floor would revive tokens."""
        self._take()
        try:
            data = self._state.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=IssuerState)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Integrity(f"The state of svc-passport, {self._state}, is damaged.", reason="bad_state") from exc

    def _take(self) -> None:
        """Take the folder's lock: two writers would break the chain, and each revive what the other revoked."""
        if self._lock is not None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Conflict(f"Another svc-passport is using {self._folder}.", reason="locked") from None
        self._lock = lock

    def close(self) -> None:
        """Give the lock back."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def save(self, state: IssuerState) -> None:
        """Write the state."""
        write_private(self._state, msgspec.json.encode(state))

    def publish(self, published: PublishedTrust) -> None:
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
        """Walk the audit file on from its mark, and cut off a line that was never finished."""
        mark = audit.read_mark(self._mark)
        if not self._audit.exists() and not mark.size:
            self._audit.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return audit.START
        size = self._audit.stat().st_size if self._audit.exists() else 0
        if size < mark.size:
            raise Integrity("The audit has lost records that were on disk.", reason="broken_chain")
        # A file of some size is walked on from its mark; `penstock audit verify` walks it whole.
        walked = audit.walk_file(self._audit, mark if size > _WALKED_WHOLE_BYTES else audit.Mark(audit.START, 0))
        _cut_unfinished(self._audit)
        return walked

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        """Append to the audit file; what is synced is marked, so that the next start need not walk it again."""
        size = audit.append(self._audit, lines, sync=sync)
        if sync:
            # Not synced itself: a mark that is lost or torn costs a longer walk and nothing else.
            write_private(self._mark, msgspec.json.encode(audit.Mark(ends, size)), sync=False)


def _cut_unfinished(path: Path) -> None:
    """Cut off what follows the last newline; looked for from the end."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end != size:
            file.truncate(end)


def write_private(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file in one step, durably, readable by its owner alone: a reader sees the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
        if sync:
            out.flush()
            os.fsync(out.fileno())
    temporary.replace(path)
    if sync:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
