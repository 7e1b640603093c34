"""What outlives the process.

The counter, what was revoked, the ring of keys, and the newest policy version seen. Pure.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.capability.floors import Floors, merged
from penstock.contracts.passport import (
    Jwk,
    KeySet,
    Revocation,
    Revocations,
)

FEED_ENTRIES: Final = 1024
LEASE_MS: Final = 5000


class Kept(msgspec.Struct, frozen=True):
    """A revocation in force, and when no token it could hit is alive any more."""

    entry: Revocation
    until_ms: int


class IssuerState(msgspec.Struct, frozen=True, kw_only=True):
    """One state, swapped whole. The counter and the sequence never go back."""

    seq: int = 0
    current: int = 0
    issuer: int = 0
    kept: tuple[Kept, ...] = ()
    # The last entries in order, for readers that only want what is new.
    feed: tuple[Revocation, ...] = ()
    # Every key that verifies; the ones that sign are named in `signing`, by algorithm.
    keys: tuple[Jwk, ...] = ()
    signing: dict[str, str] = {}
    policy_version: int = 0
    # Ids of operator tokens: a revocation that names one is kept for as long as such a token may live.
    operator_ids: tuple[str, ...] = ()
    # So many records of the audit were signed for when this was written: a shorter audit has lost some.
    audited: int = 0
    # The last head that each service had attested: its number and its hash.
    attested: dict[str, tuple[int, str]] = {}
    # Where the lock file lies. A copy of the data directory has it elsewhere.
    place: str = ""

    def floors(self) -> Floors:
        """Return the floors that verifiers judge by."""
        entries = [kept.entry for kept in self.kept]
        return merged(Floors(seq=self.seq), entries, current=self.current, issuer=self.issuer)

    def with_revocation(self, entry: Revocation, until_ms: int, now_ms: int) -> IssuerState:
        """Return the state after a revocation; what can hit nothing any more is dropped on the way."""
        named = (entry.kind, entry.value)
        kept = [each for each in self.kept if each.until_ms > now_ms and (each.entry.kind, each.entry.value) != named]
        issuer = max(self.issuer, entry.floor) if entry.kind == "epoch" else self.issuer
        return msgspec.structs.replace(
            self,
            seq=entry.seq,
            current=max(self.current, entry.floor),
            issuer=issuer,
            kept=(*kept, Kept(entry, until_ms)),
            feed=(*self.feed, entry)[-FEED_ENTRIES:],
        )

    def revocations(self, since: int) -> Revocations:
        """Return the feed after `since`, or everything in force when that is too long ago."""
        oldest = self.feed[0].seq if self.feed else self.seq + 1
        gap = since + 1 < oldest or since > self.seq
        entries = (kept.entry for kept in self.kept) if gap else (entry for entry in self.feed if entry.seq > since)
        return Revocations(self.seq, self.current, self.issuer, LEASE_MS, gap, tuple(entries))

    def snapshot(self) -> Revocations:
        """Return everything in force."""
        entries = tuple(kept.entry for kept in self.kept)
        return Revocations(self.seq, self.current, self.issuer, LEASE_MS, snapshot=True, entries=entries)

    def key_set(self, now_s: float) -> KeySet:
        """Return the keys that verify now, newest first."""
        return KeySet(tuple(key for key in self.keys if key.exp > now_s))
