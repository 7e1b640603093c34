"""Where the issuer's state is kept: files in the data directory, or RAM alone. Blocking calls, made on a pool."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, Protocol

import msgspec
from blake3 import blake3

from penstock.capability.following import PublishedTrust
from penstock.capability.trust import record_of
from penstock.contracts import passport as p
from penstock.kernel.errors import Conflict, Integrity
from penstock.services.passport import audit
from penstock.services.passport.recovery import NotedRevocation
from penstock.services.passport.state import IssuerState

_AUDIT_BYTES_MAX: Final = 1 << 20
_FORMAT: Final = 2
# How a state without a checksum begins.
_OLD_STATE: Final = b'{"seq":'
# How the published file begins; the time of the last beat follows, in 13 digits until the year 2286.
_BEAT: Final = b'{"at_ms":'
_BLOCK_BYTES: Final = 64 * 1024
# Half a second of walking.
_WALKED_WHOLE_BYTES: Final = 48 << 20


class StateFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state as it lies on disk: its exact bytes under a checksum. Older files hold the state alone."""

    format: int
    sum: str
    state: msgspec.Raw


class PassportStore(Protocol):
    """Keeps the state, what is published, the operator's token and the audit.

    Every write is durable when it returns.
    """

    def load(self) -> IssuerState | None:
        """Return the state of the last run, None at the first start; from now on it is nobody else's."""

    def save(self, state: IssuerState) -> None:
        """Keep a state."""

    def publish(self, published: PublishedTrust) -> None:
        """Write what verifiers read."""

    def beat(self, at_ms: int) -> None:
        """Say in what verifiers read that the issuer lives."""

    def place(self) -> str:
        """Say where the state lies, in a way that a copy of it cannot keep; empty where nothing is kept."""

    def was_restored(self) -> bool:
        """Tell whether somebody says that the data directory was put back from a copy."""

    def settle_restored(self) -> None:
        """Take note of that: everything from before is revoked."""

    def noted_revocations(self) -> list[NotedRevocation]:
        """Read the revocations that the audit tells of."""

    def head(self) -> p.Attested | None:
        """Return the signed head of the audit."""

    def keep_head(self, attested: p.Attested) -> None:
        """Keep a signed head of the audit."""

    def check_head(self, walked: audit.Walked, known: audit.Evidence) -> None:
        """Hold the audit to its signed head."""

    def operator_token(self) -> str:
        """Return the operator's token, or nothing."""

    def keep_operator_token(self, token: str) -> None:
        """Keep the operator's token where only its owner can read it."""

    def audited(self) -> audit.Walked:
        """Walk the audit and return where it ends."""

    def audit_part(self, end: int | None, most: int) -> audit.AuditPart:
        """Return whole lines before a place of the audit, or its last ones; at most so many bytes."""

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        """Append lines to the audit, which then ends like this; `sync` waits for the disk."""

    def close(self) -> None:
        """Let others have it."""


class MemoryStore:
    """Keeps everything in RAM: nothing outlives the process, and no file is written."""

    def __init__(self) -> None:
        self._state: IssuerState | None = None
        self._token = ""
        self.published: PublishedTrust | None = None
        self.attested: p.Attested | None = None
        self.audit = bytearray()
        # So many bytes of it are gone.
        self._cut = 0

    def load(self) -> IssuerState | None:
        """Return what was kept."""
        return self._state

    def save(self, state: IssuerState) -> None:
        """Keep a state."""
        self._state = state

    def publish(self, published: PublishedTrust) -> None:
        """Keep what verifiers read."""
        self.published = published

    def beat(self, at_ms: int) -> None:
        """Say nothing: nobody outside the process reads it."""

    def place(self) -> str:
        """Lie nowhere."""
        return ""

    def was_restored(self) -> bool:
        """Say no: RAM is not put back."""
        return False

    def settle_restored(self) -> None:
        """Have nothing to note."""

    def noted_revocations(self) -> list[NotedRevocation]:
        """Find none: there is no audit from before."""
        return []

    def head(self) -> p.Attested | None:
        """Find none."""
        return None

    def keep_head(self, attested: p.Attested) -> None:
        """Keep the newest head."""
        self.attested = attested

    def check_head(self, walked: audit.Walked, known: audit.Evidence) -> None:
        """Hold nothing to it."""

    def operator_token(self) -> str:
        """Return the operator's token."""
        return self._token

    def keep_operator_token(self, token: str) -> None:
        """Keep the operator's token."""
        self._token = token

    def audited(self) -> audit.Walked:
        """Begin a new chain: there is none from before."""
        return audit.START

    def audit_part(self, end: int | None, most: int) -> audit.AuditPart:
        """Return lines of what is kept; places are counted from the first line there ever was."""
        last = self._cut + len(self.audit)
        stop = last if end is None else max(self._cut, min(end, last))
        start = max(self._cut, stop - most)
        return audit.part_before(bytes(self.audit[start - self._cut : stop - self._cut]), start, self._cut)

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        """Keep the newest lines, whole ones, within a bound: RAM is all there is."""
        self.audit += lines
        if len(self.audit) > _AUDIT_BYTES_MAX:
            cut = self.audit.find(b"\n", len(self.audit) - _AUDIT_BYTES_MAX // 2) + 1
            del self.audit[:cut]
            self._cut += cut

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
        self._head = data_dir / "audit" / "passport.head"
        # Made by whoever put the data directory back from a copy that kept the places of its files.
        self._restored = self._folder / "restored"
        self._lock: int | None = None

    def load(self) -> IssuerState | None:
        """Read the state; one that cannot be read stops the start, because a lost floor would revive tokens."""
        self._take()
        state = read_state(self._state)
        if state is None and (self._folder / "keys.sealed").exists():
            raise Integrity(
                f"The state of svc-passport, {self._state}, is missing and its keys are there: tokens that "
                "were revoked "
                f"would come back to life. Put the state back, or move {self._folder} away to begin as a new issuer.",
                reason="lost_state",
            )
        return state

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
        data = msgspec.json.encode(state)
        write_private(self._state, msgspec.json.encode(StateFile(_FORMAT, _sum(data), msgspec.Raw(data))))

    def publish(self, published: PublishedTrust) -> None:
        """Write what verifiers read."""
        write_private(self._public, msgspec.json.encode(published))

    def beat(self, at_ms: int) -> None:
        """Write the time over the one in the file, in place.

        This needs no room, so it goes on while the disk is full.
        """
        digits = b"%013d" % at_ms
        with self._public.open("r+b") as file:
            if file.read(len(_BEAT)) != _BEAT:
                raise Integrity("What svc-passport published was changed by somebody else.", reason="bad_public_file")
            file.seek(len(_BEAT))
            file.write(digits)

    def place(self) -> str:
        """Name the lock file by its inode: a copy of the directory has another."""
        return "" if self._lock is None else str(os.fstat(self._lock).st_ino)

    def was_restored(self) -> bool:
        """Look for the file that says so."""
        return self._restored.exists()

    def settle_restored(self) -> None:
        """Take the file away."""
        self._restored.unlink(missing_ok=True)

    def noted_revocations(self) -> list[NotedRevocation]:
        """Read the revocations that the audit tells of."""
        return audit.noted_revocations(self._audit) if self._audit.exists() else []

    def head(self) -> p.Attested | None:
        """Read the signed head of the audit."""
        return read_head(self._head)

    def keep_head(self, attested: p.Attested) -> None:
        """Write the signed head of the audit."""
        write_private(self._head, msgspec.json.encode(attested))

    def check_head(self, walked: audit.Walked, known: audit.Evidence) -> None:
        """Hold the audit to its signed head and to what the state knows of it."""
        if walked.records < known.records:
            raise Integrity(
                f"The audit has {walked.records} records and had {known.records}: it was deleted or cut short.",
                reason="deleted",
            )
        audit.check_head(self._audit, walked, known)

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

    def audit_part(self, end: int | None, most: int) -> audit.AuditPart:
        """Read lines of the audit file."""
        return audit.read_part(self._audit, end, most)

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        """Append to the audit file; what is synced is marked, so that the next start need not walk it again."""
        size = audit.append(self._audit, lines, sync=sync)
        if sync:
            # Not synced itself: a mark that is lost or torn costs a longer walk and nothing else.
            write_private(self._mark, msgspec.json.encode(audit.Mark(ends, size)), sync=False)


def read_state(path: Path) -> IssuerState | None:
    """Read a state; None when there is none. One that is damaged is refused: a lost floor would revive tokens."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if data.startswith(_OLD_STATE):
            return msgspec.json.decode(data, type=IssuerState)
        file = msgspec.json.decode(data, type=StateFile)
        if file.format != _FORMAT or file.sum != _sum(bytes(file.state)):
            raise Integrity(f"The state of svc-passport, {path}, is damaged.", reason="bad_state")
        return msgspec.json.decode(file.state, type=IssuerState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Integrity(f"The state of svc-passport, {path}, is damaged.", reason="bad_state") from exc


def read_head(path: Path) -> p.Attested | None:
    """Read a signed head; None when there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=p.Attested)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Integrity(f"The signed head of the audit, {path}, is damaged.", reason="bad_signature", n=0) from exc


def read_evidence(data_dir: Path) -> audit.Evidence:
    """Read what is known of an audit from outside of its file; works beside a running node."""
    state = read_state(data_dir / "passport" / "state.json")
    head = read_head(data_dir / "audit" / "passport.head")
    if state is None:
        return audit.Evidence(0, head)
    return audit.Evidence(state.audited, head, {key.kid: record_of(key) for key in state.keys})


def _sum(data: bytes) -> str:
    return blake3(data, derive_key_context="penstock.passport.state").hexdigest()


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
