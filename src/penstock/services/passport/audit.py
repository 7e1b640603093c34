"""The hash-chained record of what was issued, revoked and rotated; no token and no secret is ever in it.

Each line names the hash of the line before: taking one out, changing one or swapping two breaks the chain from there.
Whoever can write the file can compute a new chain, so the head is signed by the key store, in a file beside it: up to
the signed line everything has to be there as it was.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.capability.attesting import check_attested
from penstock.capability.trust import KeyRecord
from penstock.contracts.passport import Attested
from penstock.kernel.errors import Integrity
from penstock.services.passport.recovery import NotedRevocation
from penstock.wire.audit_chain import GENESIS, AuditChain, ChainRecord, chain_on, read_record

# So much of the end of a file is read at the start, for the operator's page.
LAST_BYTES: Final = 64 << 10
_REVOKE: Final = b'"action":"revoke"'


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
        epoch = max(epoch, _epoch(chain_on(chain, line)))
    return Walked(chain.n, chain.head, epoch)


def _epoch(record: ChainRecord) -> int:
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


class Evidence(msgspec.Struct, frozen=True):
    """What is known of an audit from outside of its file."""

    # How many records the issuer's state says there are at least.
    records: int = 0
    head: Attested | None = None
    keys: Mapping[str, KeyRecord] = {}


def verify(path: Path, known: Evidence) -> Walked:
    """Walk a whole file, whatever its mark says, and hold it to what is known of it. None at all yet is no fault."""
    marked = max(read_mark(path.with_suffix(".mark")).ends.records, known.records)
    try:
        walked = walk_file(path, Mark(START, 0))
    except FileNotFoundError:
        if marked or known.head is not None:
            lost = max(marked, 0 if known.head is None else known.head.n)
            raise Integrity(f"The audit was deleted: records 1 to {lost} are missing.", reason="deleted", n=1) from None
        return START
    if walked.records < marked:
        n = walked.records + 1
        raise Integrity(f"Records {n} to {marked} of the audit are missing.", reason="broken_chain", n=n)
    check_head(path, walked, known)
    return walked


def check_head(path: Path, walked: Walked, known: Evidence) -> None:
    """Hold a file to its signed head: signed by one of these keys, and the line it names is there with its hash."""
    head = known.head
    if head is None:
        if known.records:
            raise Integrity("The signed head of the audit is missing.", reason="unsigned", n=walked.records)
        return
    try:
        check_attested(head, known.keys)
    except Integrity as broken:
        raise Integrity(broken.detail, reason=str(broken.facts["reason"]), n=head.n) from broken
    if head.n > walked.records:
        n = walked.records + 1
        raise Integrity(f"Records {n} to {head.n} of the audit are missing.", reason="broken_chain", n=n)
    if head.n and _line_with(path, head.head) != head.n:
        raise Integrity(
            f"Record {head.n} of the audit is not the one that was signed for: the chain was made anew.",
            reason="bad_signature",
            n=head.n,
        )


def _line_with(path: Path, head: str) -> int:
    """Return the number of the line that has this hash, found from the end; 0 when there is none."""
    line_end = b'"hash":"' + head.encode("ascii", "replace") + b'"}\n'
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = data.rfind(line_end)
            if end < 0:
                return 0
            start = data.rfind(b"\n", 0, end) + 1
            return read_record(data[start : end + len(line_end)], 0).n


def noted_revocations(path: Path) -> list[NotedRevocation]:
    """Read every revocation the file tells of, without walking the rest."""
    found: list[NotedRevocation] = []
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return found
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = data.find(_REVOKE)
            while place >= 0:
                start, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
                if end < 0:
                    break
                record = read_record(data[start : end + 1], 0)
                if record.action == "revoke":
                    found.append(_noted(record))
                place = data.find(_REVOKE, end)
    return found


def _noted(record: ChainRecord) -> NotedRevocation:
    facts = record.facts
    return NotedRevocation(
        record.at_ms, facts["kind"], str(facts["value"]), int(facts["epoch"]), str(facts.get("within", ""))
    )


def last_records(lines: bytes, most: int) -> list[tuple[int, int, str, dict[str, Any]]]:
    """Read the last records of whole lines, oldest first: number, time, action and facts.

    They are only shown. One that cannot be read hides those before it; the walk at the start judges the file.
    """
    found: list[tuple[int, int, str, dict[str, Any]]] = []
    for line in reversed(lines.splitlines(keepends=True)[-most:]):
        try:
            record = read_record(line, 0)
        except Integrity:
            break
        found.append((record.n, record.at_ms, record.action, record.facts))
    return found[::-1]


class AuditPart(msgspec.Struct, frozen=True):
    """Whole lines of the audit: where they begin, and where the oldest line begins that there is."""

    data: bytes
    start: int
    first: int = 0


def part_before(data: bytes, start: int, first: int) -> AuditPart:
    """Return the whole lines of a piece of the audit that ends where a line does, or in one that is being written."""
    end = data.rfind(b"\n") + 1
    head = 0 if start == first else data.find(b"\n", 0, end) + 1
    return AuditPart(data[head:end], start + head, first)


def read_part(path: Path, end: int | None, most: int) -> AuditPart:
    """Read the lines before a place of the file, or its last ones; at most so many bytes."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            stop = size if end is None else min(end, size)
            start = max(0, stop - most)
            file.seek(start)
            return part_before(file.read(stop - start), start, 0)
    except FileNotFoundError:
        return AuditPart(b"", 0)


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
