"""A record as a chain of lines: each names the hash of the line before, so that none can be taken out or changed.

Pure: lines in, lines out. Who writes them where is the business of the service whose acts they record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec
from blake3 import blake3

from penstock.kernel.errors import Integrity

GENESIS: Final = "0" * 64
_CHAIN: Final = blake3(derive_key_context="penstock.audit.v1")
_encode: Final = msgspec.json.Encoder().encode


class ChainRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `hash` covers all the other members, `prev` among them."""

    n: int
    at_ms: int
    action: str
    facts: dict[str, Any]
    prev: str
    hash: str = ""


class ChainEnd(NamedTuple):
    """Where a chain ends: how many lines it has, and the hash of the last."""

    records: int = 0
    head: str = GENESIS


class AuditChain:
    """The end of a chain, where lines are added."""

    __slots__ = ("head", "n")

    def __init__(self, n: int = 0, head: str = GENESIS) -> None:
        """Go on after line `n`, whose hash is `head`."""
        self.n = n
        self.head = head

    @property
    def end(self) -> ChainEnd:
        """Return where the chain ends now."""
        return ChainEnd(self.n, self.head)

    def add(self, action: str, at_ms: int, facts: dict[str, Any]) -> bytes:
        """Return the next line."""
        body = _encode(ChainRecord(self.n + 1, at_ms, action, facts, self.head))
        hasher = _CHAIN.copy()
        hasher.update(body)
        self.n += 1
        self.head = hasher.hexdigest()
        # The hash is the last member, so that a line is its body with the hash put in.
        return body[:-1] + b',"hash":"' + self.head.encode("ascii") + b'"}\n'


def walk_chain(lines: Iterable[bytes], start: ChainEnd = ChainEnd()) -> ChainEnd:  # noqa: B008 - a value
    """Walk lines from a place in a chain; the first that does not follow from the one before is `Integrity`.

    A last line without its newline was never finished and is ignored: its writer will write it again.
    """
    chain = AuditChain(*start)
    for line in lines:
        if not line.endswith(b"\n"):
            break
        chain_on(chain, line)
    return chain.end


def chain_on(chain: AuditChain, line: bytes) -> ChainRecord:
    """Take the next line of a chain and return its record; `Integrity` when it does not follow."""
    record = read_record(line, chain.n + 1)
    if chain.add(record.action, record.at_ms, record.facts) != line:
        raise Integrity(
            f"Record {chain.n} of the audit does not follow from the one before.", reason="broken_chain", n=chain.n
        )
    return record


def read_record(line: bytes, n: int) -> ChainRecord:
    """Read one line; `n` is the number that the refusal of an unreadable one names."""
    try:
        return msgspec.json.decode(line, type=ChainRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Integrity(f"Record {n} of the audit cannot be read.", reason="broken_chain", n=n) from exc
