"""Looks for damage in the mailbox's file, on connections of its own: it takes long, and nobody waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from penstock.services.mailbox.engines.engine import Corrupt
from penstock.services.mailbox.engines.sqlite_reads import SqliteReads

FAULTS_MAX: Final = 10
_LIMITS: Final = (1000, 30, 1)
_SEQ_MAX: Final = 1 << 46


def inspect(path: Path, vfs: str | None) -> list[str]:
    """Let SQLite check its pages and compare every index with its table; what cannot be read is named by its range."""
    reads = SqliteReads(path, vfs)
    try:
        faults = _integrity(reads)
        return [*_unreadable(reads), *faults] if faults else []
    except (Corrupt, apsw.Error) as damage:
        return [str(damage)]
    finally:
        reads.close_reader()


def _integrity(reads: SqliteReads) -> list[str]:
    try:
        return reads.integrity(FAULTS_MAX)
    except Corrupt as damage:
        return [damage.detail]


def only_indexes(faults: list[str]) -> bool:
    """Tell whether every fault is one of an index: those are made anew from their table."""
    return all("index" in fault.lower() and "page" not in fault.lower() for fault in faults)


def _unreadable(reads: SqliteReads) -> list[str]:
    """Walk the messages; where a page cannot be read, go on behind it."""
    faults: list[str] = []
    at = 0
    while at < _SEQ_MAX and len(faults) < FAULTS_MAX:
        following = _next(reads, at, _LIMITS)
        if following is None:
            behind = _behind(reads, at)
            faults.append(f"messages {at + 1} to {behind or 'the last'} cannot be read")
            at = behind or _SEQ_MAX
        elif following == at:
            break
        else:
            at = following
    return faults


def _next(reads: SqliteReads, at: int, limits: tuple[int, ...]) -> int | None:
    """Return the last number of a slice that can be read, the same number at the end, None when nothing can."""
    for limit in limits:
        try:
            return reads.last_of(at, limit)
        except Corrupt:
            continue
    return None


def _behind(reads: SqliteReads, at: int) -> int | None:
    """Find a number from which on messages can be read again."""
    step = 1
    while at + step < _SEQ_MAX:
        found = _next(reads, at + step, (1,))
        if found is not None:
            return at + step if found > at + step else None
        step *= 2
    return None
