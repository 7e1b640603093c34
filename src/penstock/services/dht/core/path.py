"""One path of a lookup: the candidates it has heard of, by distance, and which of them to ask next. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.services.dht.core.diversity import DiversityRules, Mix

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact

# What one lookup remembers at most: twenty answers of twenty contacts that nobody else named, and more.
CANDIDATES_MAX = 512
# How far the search for somebody to ask goes: k of 20, as many more whose namer has its share, and some.
FRONT_MAX = 64
_distance = itemgetter(0)


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

    __slots__ = ("_front", "_mix", "_order", "_rules", "_seen", "known", "target")

    def __init__(self, target: int, rules: DiversityRules) -> None:
        self.target = target
        self._rules = rules
        self.known: dict[int, Candidate] = {}
        # Sorted by distance; distances differ.
        self._order: list[tuple[int, Candidate]] = []
        # The front: the nearest that have not failed and whose networks are mixed enough. It is made as far as somebody
        # looks, which is seldom far: `_seen` of the ordered candidates were judged, and `_mix` counts those in front.
        self._front: list[Candidate] = []
        self._mix = Mix(rules)
        self._seen = 0

    def hear_of(self, contacts: list[Contact], depth: int, namer: int) -> None:
        """Add the contacts that somebody named; a known one keeps the depth at which it was first heard of."""
        known, target = self.known, self.target
        fresh: list[tuple[int, Candidate]] = []
        for contact in contacts:
            node_id = contact.id
            if node_id not in known and len(known) < CANDIDATES_MAX:
                known[node_id] = candidate = Candidate(contact, depth, namer)
                fresh.append((node_id ^ target, candidate))
        if fresh:
            self._sort_in(fresh)

    def _sort_in(self, fresh: list[tuple[int, Candidate]]) -> None:
        order = self._order
        if self._seen and min(fresh, key=_distance)[0] < order[self._seen - 1][0]:
            self._judge_anew()
        order += fresh
        order.sort(key=_distance)

    def _judge_anew(self) -> None:
        self._front, self._mix, self._seen = [], Mix(self._rules), 0

    def fail(self, candidate: Candidate) -> None:
        """Give up on a candidate: it no longer takes a place among the nearest."""
        candidate.state = ProbeState.FAILED
        self._judge_anew()

    def front(self, count: int) -> list[Candidate]:
        """Return the nearest candidates that have not failed, as far as their networks are mixed enough."""
        while len(self._front) < count and self._extend():
            pass
        return self._front[:count]

    def _extend(self) -> bool:
        """Find one more for the front; False when there is nobody else, or the front is long enough for anything."""
        front, order = self._front, self._order
        if len(front) >= FRONT_MAX:
            return False
        while self._seen < len(order):
            candidate = order[self._seen][1]
            self._seen += 1
            group = candidate.contact.group
            if candidate.state is not ProbeState.FAILED and (group is None or self._mix.admit(group)):
                front.append(candidate)
                return True
        return False

    def worth_asking(self, k: int) -> Iterator[Candidate]:
        """Go through the unasked among the k nearest, at most half of whom one node may have named.

        Those over the half do not count among the k: a liar that names twenty nodes cannot hide the others behind them.
        """
        half, by_namer, front, at = k // 2, dict[int, int](), self._front, 0
        while k and (at < len(front) or self._extend()):
            candidate = front[at]
            at += 1
            state, namer = candidate.state, candidate.namer
            if namer and (state is ProbeState.NOT_YET or state is ProbeState.WAITING):
                named = by_namer.get(namer, 0)
                if named >= half:
                    continue
                by_namer[namer] = named + 1
            if state is ProbeState.NOT_YET:
                yield candidate
            k -= 1

    def answered(self, count: int) -> list[Contact]:
        """Return the nearest contacts that answered."""
        answered = (each.contact for _, each in self._order if each.state is ProbeState.ANSWERED)
        return list(islice(answered, count))
