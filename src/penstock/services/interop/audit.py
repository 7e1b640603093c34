"""The record of what the bridge decided, as lines of a hash chain; pure.

Every decision becomes an item in a bounded ring. When the ring is full its oldest item is dropped: business never waits
for the audit. The one writer takes items and makes the links, so a dropped item breaks nothing. The writer only knows
that some were dropped, and writes a record that says how many. Every thousand records the head of the chain is to be
signed by svc-passport, so that nobody can later replace the whole chain.

An item holds no secret: the names of what it may say are fixed here, and values are short texts and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from penstock.wire.audit_chain import AuditChain, ChainEnd

ATTEST_EVERY: Final = 1000
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
        self._attested = end.records

    @property
    def end(self) -> ChainEnd:
        """Return where the chain ends now."""
        return self._chain.end

    def write(self, acts: Iterable[BridgeAct], dropped: int, now_ms: int) -> bytes:
        """Return the lines of these acts, after one that tells of those dropped since the last call."""
        lines = []
        if dropped > self._dropped_seen:
            lines.append(self._chain.add("dropped", now_ms, {"dropped": dropped - self._dropped_seen}))
            self._dropped_seen = dropped
        lines += [self._chain.add(act.action, act.at_ms, _facts(act)) for act in acts]
        return b"".join(lines)

    def attest_due(self, *, draining: bool) -> ChainEnd | None:
        """Return the end of the chain when it should be signed now: every thousand records, and at the drain."""
        fresh = self._chain.n - self._attested
        return self.end if fresh >= ATTEST_EVERY or (draining and fresh) else None

    def attested(self, end: ChainEnd, signature: str, now_ms: int) -> bytes:
        """Return the line that keeps a signature of the head."""
        self._attested = self._chain.n + 1
        return self._chain.add("attested", now_ms, {"n": end.records, "head": end.head, "signature": signature})


def _facts(act: BridgeAct) -> dict[str, str | int]:
    named = msgspec.structs.asdict(act)
    defaults = {"action", "at_ms"} | {name for name, value in named.items() if value in ("", 0)}
    if act.count == 1:
        defaults.add("count")
    return {name: value for name, value in named.items() if name not in defaults}
