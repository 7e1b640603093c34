"""One path of a lookup: the candidates it has heard of, by distance, and which of them to ask next. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from penstock.services.dht.core.diversity import DiversityRules, Mix

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact

# What one lookup remembers at most: twenty answers of twenty contacts that nobody else named, and more.
CANDIDATES_MAX = 512
# How far the search for somebody to ask goes: k of 20, as many more whose namer has its share, and some.
FRONT_MAX = 64


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
        self.contact = contact
        self.depth = depth
        self.namer = namer
        self.state = ProbeState.NOT_YET


class SearchPath:
    """Candidates nearest first. Only the k nearest that have not failed are worth asking."""

    __slots__ = ("_front", "_rules", "known", "order", "target")

    def __init__(self, target: int, rules: DiversityRules) -> None:
        self.target = target
        self._rules = rules
        self.known: dict[int, Candidate] = {}
        # Sorted by distance; distances differ, so the candidates themselves are never compared.
        self.order: list[tuple[int, Candidate]] = []
        # The nearest that have not failed and whose networks are mixed enough; None after anything changed it.
        self._front: list[Candidate] | None = None

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
            self._front = None

    def fail(self, candidate: Candidate) -> None:
        """Give up on a candidate: it no longer takes a place among the nearest."""
        candidate.state = ProbeState.FAILED
        self._front = None

    def front(self) -> list[Candidate]:
        """Return the nearest candidates that have not failed, as far as their networks are mixed enough."""
        if self._front is None:
            self._front = self._mixed()
        return self._front

    def _mixed(self) -> list[Candidate]:
        mix, front = Mix(self._rules), list[Candidate]()
        for _, candidate in self.order:
            if candidate.state is ProbeState.FAILED:
                continue
            group = candidate.contact.group
            if group is not None:
                if not mix.allows(group):
                    continue
                mix.add(group)
            front.append(candidate)
            if len(front) >= FRONT_MAX:
                break
        return front

    def worth_asking(self, k: int) -> Iterator[Candidate]:
        """Go through the unasked among the k nearest, at most half of whom one node may have named.

        Those over the half do not count among the k: a liar that names twenty nodes cannot hide the others behind them.
        """
        half, by_namer = k // 2, dict[int, int]()
        for candidate in self.front():
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
        answered = (each.contact for _, each in self.order if each.state is ProbeState.ANSWERED)
        return list(islice(answered, count))


def _distance(item: tuple[int, Candidate]) -> int:
    return item[0]
