"""What was revoked: a floor for each level, and single ids. A token falls when its epoch is below any that applies.

One counter: each revocation raises `current`, and the floor it sets is the counter at that time. Nothing here ever
goes back. Immutable, so that a reader holds one consistent state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from penstock.capability.token import TokenRoot
from penstock.contracts.passport import Revocation, RevocationKind

Level: TypeAlias = tuple[RevocationKind, str]
LEVELS: Final[tuple[RevocationKind, ...]] = ("kid", "tenant", "subject_ref")
IDS: Final[tuple[RevocationKind, ...]] = ("tid", "rid")
Verdict = Literal["stands", "revoked"]


@dataclass(frozen=True, slots=True)
class Floors:
    """A state of revocation; `in_force` has the newest entry of every name, in the order of their numbers."""

    current: int = 0
    issuer: int = 0
    seq: int = 0
    in_force: MappingProxyType[Level, Revocation] = field(default_factory=lambda: MappingProxyType({}))

    def floor_of(self, root: TokenRoot) -> int:
        """Return the effective floor: the maximum over all levels that apply."""
        named: tuple[Level, ...] = (("kid", root.kid), ("tenant", root.owner), ("subject_ref", root.sub))
        found = (self.in_force.get(level) for level in named)
        return max(self.issuer, *(0 if entry is None else entry.floor for entry in found))

    def hits(self, root: TokenRoot, rids: Iterable[bytes]) -> bool:
        """Tell whether a token falls: by a floor, by an id of its own, or by one it was issued with."""
        if root.epoch < self.floor_of(root):
            return True
        if ("tid", root.tid.hex()) in self.in_force or any(("rid", rid.hex()) in self.in_force for rid in rids):
            return True
        # The first id of a level is the tid of that token, the others are its blocks.
        return any(
            ("tid" if place == 0 else "rid", one.hex()) in self.in_force
            for level in root.via
            for place, one in enumerate(level)
        )

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
