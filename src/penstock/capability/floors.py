"""What was revoked: a floor for each level, and single ids. A token falls when its epoch is below any that applies.

One counter: each revocation raises `current`, and the floor it sets is the counter at that time. Nothing here ever
goes back. Immutable, so that a reader holds one consistent state.

Tenants and subjects are named by digests: anybody may read the feed, and a verifier that holds a token knows which
digests to look for. Entries of older issuers hold the names themselves and are matched too. An entry whose value ends
in `@` and a tenant's digest was made by a revoker of that tenant, and hits tokens of that tenant alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from blake3 import blake3

from penstock.capability.token import IssuingLevel, TokenRoot
from penstock.contracts.passport import Revocation, RevocationKind

Level: TypeAlias = tuple[RevocationKind, str]
LEVELS: Final[tuple[RevocationKind, ...]] = ("kid", "tenant", "subject_ref")
IDS: Final[tuple[RevocationKind, ...]] = ("tid", "rid")
Verdict = Literal["stands", "revoked"]


@lru_cache(maxsize=8192)
def name_digest(name: str) -> str:
    """Name a tenant or a subject where everybody can read it."""
    return "b3:" + blake3(name.encode("utf-8"), derive_key_context="penstock.revocation.name").hexdigest(16)


def within(value: str, owner: str) -> str:
    """Write a revocation that hits only tokens of one tenant, which is given by its digest."""
    return f"{value}@{owner}"


@dataclass(frozen=True, slots=True)
class Floors:
    """A state of revocation; `in_force` has the newest entry of every name, in the order of their numbers."""

    current: int = 0
    issuer: int = 0
    seq: int = 0
    in_force: MappingProxyType[Level, Revocation] = field(default_factory=lambda: MappingProxyType({}))

    def floor_of(self, bearer: TokenRoot | IssuingLevel) -> int:
        """Return the effective floor of a token, or of one it was issued with: the maximum over all that apply."""
        owner, sub = name_digest(bearer.owner), name_digest(bearer.sub)
        named: tuple[Level, ...] = (
            ("kid", bearer.kid),
            ("tenant", owner),
            ("tenant", bearer.owner),
            ("subject_ref", sub),
            ("subject_ref", within(sub, owner)),
            ("subject_ref", bearer.sub),
        )
        found = (self.in_force.get(level) for level in named)
        return max(self.issuer, *(0 if entry is None else entry.floor for entry in found))

    def hits(self, root: TokenRoot, rids: Iterable[bytes]) -> bool:
        """Tell whether a token falls: by a floor or an id of its own, or by one of a token it was issued with."""
        if not self.in_force:
            return root.epoch < self.issuer or any(level.sub and level.epoch < self.issuer for level in root.via)
        return self._hits(root, root.epoch, (root.tid, *rids)) or any(
            self._hits(level, level.epoch, level.ids) for level in root.via
        )

    def hits_level(self, level: IssuingLevel) -> bool:
        """Tell whether a token that is known by its names and ids alone falls."""
        return self._hits(level, level.epoch, level.ids)

    def _hits(self, bearer: TokenRoot | IssuingLevel, epoch: int, ids: tuple[bytes, ...]) -> bool:
        # Lineages of older tokens hold ids alone.
        if bearer.sub and epoch < self.floor_of(bearer):
            return True
        owner = name_digest(bearer.owner)
        # The first id is the token's own, the others are its blocks'.
        for place, one in enumerate(ids):
            kind: RevocationKind = "rid" if place else "tid"
            if (kind, one.hex()) in self.in_force or (kind, within(one.hex(), owner)) in self.in_force:
                return True
        return False

    def with_entry(self, entry: Revocation) -> Floors:
        """Return the state after one more entry; an older or lower one changes no floor."""
        return self.with_entries((entry,))

    def with_entries(self, entries: Iterable[Revocation]) -> Floors:
        """Return the state after these, in the order of their numbers; copied once, however many they are."""
        seq, current, issuer, in_force = self.seq, self.current, self.issuer, dict(self.in_force)
        for entry in entries:
            seq, current = max(seq, entry.seq), max(current, entry.floor)
            level = (entry.kind, entry.value)
            if entry.kind == "epoch":
                issuer = max(issuer, entry.floor)
            elif (known := in_force.get(level)) is None or known.floor < entry.floor:
                # Taken out first, so that the order stays that of the numbers.
                in_force.pop(level, None)
                in_force[level] = entry
        return Floors(current, issuer, seq, MappingProxyType(in_force))


def merged(floors: Floors, entries: Iterable[Revocation], *, current: int, issuer: int) -> Floors:
    """Take in a feed: entries and the two numbers; nothing that was revoked before comes back."""
    floors = floors.with_entries(sorted(entries, key=lambda each: each.seq))
    return replace(floors, current=max(floors.current, current), issuer=max(floors.issuer, issuer))
