"""The hash-chained record of what was issued, revoked and rotated; no token and no secret is ever in it.

Each line names the hash of the line before: taking one out, changing one or swapping two breaks the chain from there.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from penstock.kernel.errors import Integrity

GENESIS: Final = "0" * 64
_CHAIN: Final = blake3(derive_key_context="penstock.audit.v1")
_encode: Final = msgspec.json.Encoder().encode


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `hash` covers all the other members, `prev` among them."""

    n: int
    at_ms: int
    action: str
    facts: dict[str, Any]
    prev: str
    hash: str = ""


def _hash(body: bytes) -> str:
    hasher = _CHAIN.copy()
    hasher.update(body)
    return hasher.hexdigest()


class AuditChain:
    """The end of a chain, where lines are added."""

    __slots__ = ("head", "n")

    def __init__(self, n: int = 0, head: str = GENESIS) -> None:
        """Go on after line `n`, whose hash is `head`."""
        self.n = n
        self.head = head

    def add(self, action: str, at_ms: int, facts: dict[str, Any]) -> bytes:
        """Return the next line."""
        record = Record(self.n + 1, at_ms, action, facts, self.head)
        body = _encode(record)
        self.n += 1
        self.head = _hash(body)
        # The hash is the last member, so that a line is its body with the hash put in.
        return body[:-1] + b',"hash":"' + self.head.encode("ascii") + b'"}\n'


class Walked(msgspec.Struct, frozen=True):
    """Where a chain ends."""

    records: int
    head: str
    # The highest epoch any record speaks of.
    epoch: int = 0


START: Final = Walked(0, GENESIS)


def walk(data: bytes) -> Walked:
    """Walk a chain from its beginning; the first line that does not follow from the one before is `Integrity`.

    A last line without its newline was never finished: it is ignored, as the writer will overwrite it.
    """
    return walk_lines(io.BytesIO(data), START)


def walk_lines(lines: Iterable[bytes], start: Walked) -> Walked:
    """Walk on from a place in a chain, one line in memory at a time."""
    chain, epoch = AuditChain(start.records, start.head), start.epoch
    for line in lines:
        if not line.endswith(b"\n"):
            break
        record = _read(line, chain.n + 1)
        if chain.add(record.action, record.at_ms, record.facts) != line:
            raise Integrity(
                f"Record {chain.n} of the audit does not follow from the one before.", reason="broken_chain", n=chain.n
            )
        epoch = max(epoch, _epoch(record))
    return Walked(chain.n, chain.head, epoch)


def _epoch(record: Record) -> int:
    epoch = record.facts.get("epoch", 0)
    return epoch if isinstance(epoch, int) else 0


class Mark(msgspec.Struct, frozen=True):
    """A place of the file that was synced: the next start walks from here, and a shorter file has lost records."""

    ends: Walked
    size: int


def read_mark(path: Path) -> Mark:
    """Read the mark beside an audit file; without a readable one the walk begins at the beginning."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Mark(START, 0)


def walk_file(path: Path, mark: Mark) -> Walked:
    """Walk a file on from its mark, which has to be there; the whole file from a mark at its beginning."""
    with path.open("rb") as file:
        if mark.size:
            line_end = b'"hash":"' + mark.ends.head.encode("ascii", "replace") + b'"}\n'
            file.seek(max(0, mark.size - len(line_end)))
            if file.read(len(line_end)) != line_end:
                n = mark.ends.records
                raise Integrity(f"Record {n} of the audit is not where it was written.", reason="broken_chain", n=n)
        return walk_lines(file, mark.ends)


def verify(path: Path) -> Walked:
    """Walk a whole file, whatever its mark says; the mark only tells whether the end is missing. None yet is no fault."""
    marked = read_mark(path.with_suffix(".mark")).ends.records
    try:
        walked = walk_file(path, Mark(START, 0))
    except FileNotFoundError:
        walked = START
    if walked.records < marked:
        n = walked.records + 1
        raise Integrity(f"Records {n} to {marked} of the audit are missing.", reason="broken_chain", n=n)
    return walked


def _read(line: bytes, n: int) -> Record:
    try:
        return msgspec.json.decode(line, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Integrity(f"Record {n} of the audit cannot be read.", reason="broken_chain", n=n) from exc


def append(path: Path, lines: bytes, *, sync: bool) -> int:
    """Append whole lines to the file, all or none of them, and return its size; `sync` waits for the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    try:
        with os.fdopen(os.dup(descriptor), "wb") as out:
            out.write(lines)
        if sync:
            os.fsync(descriptor)
        return size + len(lines)
    except OSError:
        # Half a line in the middle would break the chain for good.
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
