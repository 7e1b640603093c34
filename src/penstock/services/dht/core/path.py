"""One path of a lookup: the candidates it has heard of, by distance, and which of them to ask next. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.services.dht.core.diversity import DiversityRules, Mix

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact

# What one lookup remembers at most: twenty answers of twenty contacts that nobody else named, and more.
CANDIDATES_MAX = 512


class ProbeState(enum.Enum):
    """How far a candidate has come on its path."""

    NOT_YET = "not_yet"
    WAITING = "waiting"  # asked by this path or another, and no outcome yet
    ANSWERED = "answered"
    REFUSED = "refused"  # Busy, or the connection was cut: may be asked again when nobody else is left
    FAILED = "failed"


class Candidate:
    """A contact on a path: how deep it was found and who named it."""

    __slots__ = ("contact", "depth", "namer", "state")

    def __init__(self, contact: Contact, depth: int, namer: int) -> None:
        """Start unasked."""
        self.contact = contact
        self.depth = depth
        self.namer = namer
        self.state = ProbeState.NOT_YET


class SearchPath:
    """Candidates nearest first. Only the k nearest that have not failed are worth asking."""

    __slots__ = ("_rules", "known", "order", "target")

    def __init__(self, target: int, rules: DiversityRules) -> None:
        """Start without candidates."""
        self.target = target
        self._rules = rules
        self.known: dict[int, Candidate] = {}
        # Sorted by distance; distances differ, so the candidates themselves are never compared.
        self.order: list[tuple[int, Candidate]] = []

    def hear_of(self, contacts: list[Contact], depth: int, namer: int) -> None:
        """Add the contacts that somebody named; a known one keeps the depth at which it was first heard of."""
        known, order, target = self.known, self.order, self.target
        before = len(order)
        for contact in contacts:
            if contact.id not in known and len(known) < CANDIDATES_MAX:
                known[contact.id] = candidate = Candidate(contact, depth, namer)
                order.append((contact.id ^ target, candidate))
        if len(order) > before:
            order.sort(key=_distance)

    def nearest(self, count: int) -> Iterator[Candidate]:
        """Go through the nearest candidates that have not failed, as far as their networks are mixed enough."""
        mix: Mix | None = None
        for _, candidate in self.order:
            if candidate.state is ProbeState.FAILED:
                continue
            group = candidate.contact.group
            if group is not None:
                mix = mix or Mix(self._rules)
                if not mix.allows(group):
                    continue
                mix.add(group)
            yield candidate
            count -= 1
            if not count:
                return

    def worth_asking(self, k: int) -> Iterator[Candidate]:
        """Go through the unasked among the k nearest, at most half of whom one node may have named.

        Those over the half do not count among the k: a liar that names twenty nodes cannot hide the others behind them.
        """
        half, by_namer = k // 2, dict[int, int]()
        for candidate in self.nearest(len(self.order)):
            state, namer = candidate.state, candidate.namer
            if namer and (state is ProbeState.NOT_YET or state is ProbeState.WAITING):
                named = by_namer.get(namer, 0)
                if named >= half:
                    continue
                by_namer[namer] = named + 1
            if state is ProbeState.NOT_YET:
                yield candidate
            k -= 1
            if not k:
                return

    def answered(self, count: int) -> list[Contact]:
        """Return the nearest contacts that answered."""
        return [each.contact for each in self.nearest(len(self.order)) if each.state is ProbeState.ANSWERED][:count]


def _distance(item: tuple[int, Candidate]) -> int:
    return item[0]
