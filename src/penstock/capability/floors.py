"""What was revoked: a floor for each level, and single ids. A token falls when its epoch is below any that applies.

One counter: each revocation raises `current`, and the floor it sets is the counter at that time. Nothing here ever
goes back. Immutable, so that a reader holds one consistent state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from penstock.capability.token import Root
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

    def floor_of(self, root: Root) -> int:
        """Return the effective floor: the maximum over all levels that apply."""
        named: tuple[Level, ...] = (("kid", root.kid), ("tenant", root.owner), ("subject_ref", root.sub))
        found = (self.in_force.get(level) for level in named)
        return max(self.issuer, *(0 if entry is None else entry.floor for entry in found))

    def hits(self, root: Root, rids: Iterable[bytes]) -> bool:
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
        seq, current = max(self.seq, entry.seq), max(self.current, entry.floor)
        if entry.kind == "epoch":
            return replace(self, seq=seq, current=current, issuer=max(self.issuer, entry.floor))
        known = self.in_force.get((entry.kind, entry.value))
        if known is not None and known.floor >= entry.floor:
            return replace(self, seq=seq, current=current)
        entries = {level: old for level, old in self.in_force.items() if level != (entry.kind, entry.value)}
        entries[entry.kind, entry.value] = entry
        return replace(self, seq=seq, current=current, in_force=MappingProxyType(entries))

    def without_older(self, at_ms: int) -> Floors:
        """Forget entries from before `at_ms`: no token they could hit is still within its time."""
        kept = {level: entry for level, entry in self.in_force.items() if entry.at_ms >= at_ms}
        return self if len(kept) == len(self.in_force) else replace(self, in_force=MappingProxyType(kept))


def merged(floors: Floors, entries: Iterable[Revocation], *, current: int, issuer: int) -> Floors:
    """Take in a feed: entries and the two numbers; nothing that was revoked before comes back."""
    for entry in sorted(entries, key=lambda each: each.seq):
        floors = floors.with_entry(entry)
    return replace(floors, current=max(floors.current, current), issuer=max(floors.issuer, issuer))
