"""The hash-chained record of what was issued, revoked and rotated; no token and no secret is ever in it.

Each line names the hash of the line before: taking one out, changing one or swapping two breaks the chain from there.
"""

from __future__ import annotations

import os
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


class Chain:
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
    """What a walk over a whole chain found."""

    records: int
    head: str
    # The highest epoch any record speaks of.
    epoch: int = 0


def walk(data: bytes) -> Walked:
    """Walk a chain from its beginning; the first line that does not follow from the one before is `Integrity`.

    A last line without its newline was never finished: it is ignored, as the writer will overwrite it.
    """
    chain, epoch = Chain(), 0
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        record = _read(line, chain.n + 1)
        if chain.add(record.action, record.at_ms, record.facts) != line + b"\n":
            raise Integrity(f"Record {chain.n} does not follow from the one before.", reason="broken_chain", n=chain.n)
        epoch = max(epoch, int(record.facts.get("epoch", 0)))
    return Walked(chain.n, chain.head, epoch)


def _read(line: bytes, n: int) -> Record:
    try:
        return msgspec.json.decode(line, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Integrity(f"Record {n} cannot be read.", reason="broken_chain", n=n) from exc


def append(path: Path, lines: bytes, *, sync: bool) -> None:
    """Append whole lines to the file, all or none of them; `sync` waits for the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    try:
        with os.fdopen(os.dup(descriptor), "wb") as out:
            out.write(lines)
        if sync:
            os.fsync(descriptor)
    except OSError:
        # Half a line in the middle would break the chain for good.
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
