"""The record of what the bridge decided, as lines of a hash chain; pure.

Every decision becomes an item in a bounded ring. When the ring is full its oldest item is dropped: business never waits
for the audit. The one writer takes items and makes the links, so a dropped item breaks nothing. The writer only knows
that some were dropped, and writes a record that says how many. Every thousand records the head of the chain is to be
signed by svc-passport, so that nobody can later replace the whole chain.

An item holds no secret: the names of what it may say are fixed here, and values are short texts and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from penstock.capability.attesting import check_attested
from penstock.capability.trust import KeyRecord
from penstock.contracts.passport import Attested
from penstock.kernel.errors import Integrity
from penstock.wire.audit_chain import AuditChain, ChainEnd, ChainRecord, chain_on

ATTEST_EVERY: Final = 1000
ATTESTED: Final = "attested"
AuditDecision: TypeAlias = Literal["allow", "deny"]


class BridgeAct(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision, as it is put into the ring. `reason` is exact: the caller only learnt the class of refusal."""

    action: str
    at_ms: int
    decision: AuditDecision
    corr_id: str = ""
    endpoint: str = ""
    provider: str = ""
    reason: str = ""
    event_id: str = ""
    b3_hash: str = ""
    msg_id: str = ""
    status: int = 0
    # How many acts this record stands for, where they came too fast to be written one by one.
    count: int = 1


class AuditBook:
    """Makes lines of acts. The caller tells how many acts the ring has dropped in all so far."""

    def __init__(self, end: ChainEnd = ChainEnd()) -> None:  # noqa: B008 - a value
        """Go on where the chain ended."""
        self._chain = AuditChain(*end)
        self._dropped_seen = 0
        # Acts whose lines could not be written; the next record of dropped acts tells of them too.
        self._lost = 0
        self._attested = end.records

    @property
    def end(self) -> ChainEnd:
        """Return where the chain ends now."""
        return self._chain.end

    def write(self, acts: Iterable[BridgeAct], dropped: int, now_ms: int) -> bytes:
        """Return the lines of these acts, after one that tells of those dropped since the last call."""
        lines = []
        missing = dropped - self._dropped_seen + self._lost
        if missing:
            lines.append(self._chain.add("dropped", now_ms, {"dropped": missing}))
            self._dropped_seen, self._lost = dropped, 0
        lines += [self._chain.add(act.action, act.at_ms, _facts(act)) for act in acts]
        return b"".join(lines)

    def lose(self, acts: int) -> None:
        """Note acts whose lines could not be written."""
        self._lost += acts

    def go_on_after(self, end: ChainEnd) -> None:
        """Go on where the file really ends: lines that were made after that were never written."""
        self._chain = AuditChain(*end)
        self._attested = min(self._attested, end.records)

    def attest_due(self, *, draining: bool) -> ChainEnd | None:
        """Return the end of the chain when it should be signed now: every thousand records, and at the drain."""
        fresh = self._chain.n - self._attested
        return self.end if fresh >= ATTEST_EVERY or (draining and fresh) else None

    def attested(self, word: Attested, now_ms: int) -> bytes:
        """Return the line that keeps the issuer's word for the head."""
        self._attested = self._chain.n + 1
        return self._chain.add(ATTESTED, now_ms, msgspec.structs.asdict(word))


def _facts(act: BridgeAct) -> dict[str, str | int]:
    """Return what a record says beside its action and time; what was not given is left out."""
    facts: dict[str, str | int] = msgspec.to_builtins(act)
    del facts["action"], facts["at_ms"]
    return facts


class VerifiedAudit(NamedTuple):
    """A chain that holds: where it ends, and up to which record the issuer vouches for it."""

    end: ChainEnd
    vouched: int


def verify_audit(lines: Iterable[bytes], service: str, keys: Mapping[str, KeyRecord]) -> VerifiedAudit:
    """Walk a whole audit and check every signature in it; `Integrity` names the first record that does not hold."""
    chain, vouched = AuditChain(), 0
    for line in lines:
        if not line.endswith(b"\n"):
            break
        before = chain.end
        record = chain_on(chain, line)
        if record.action == ATTESTED:
            vouched = _vouched(record, before, service, keys)
    return VerifiedAudit(chain.end, vouched)


def _vouched(record: ChainRecord, before: ChainEnd, service: str, keys: Mapping[str, KeyRecord]) -> int:
    """Check the issuer's word: it has to be for the very record before it, of this service's chain."""
    try:
        word = msgspec.convert(record.facts, Attested)
        check_attested(word, keys)
    except (msgspec.ValidationError, Integrity) as exc:
        raise Integrity(
            f"The signature in record {record.n} does not hold.", reason="bad_signature", n=record.n
        ) from exc
    if (word.service, word.n, word.head) != (service, *before):
        raise Integrity(f"Record {record.n} holds a signature of another chain.", reason="bad_signature", n=record.n)
    return word.n
