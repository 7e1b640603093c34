"""A lookup on the real state machine: each probe is a task that answers or fails at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from penstock import weave
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.lookup import Goal, Lookup, LookupEnd, LookupRules, Probe, ProbeFailure
from penstock.services.dht.core.path import Candidate, ProbeState, SearchPath
from penstock.services.dht.core.peer_book import PeerBook

NAMES = ("n1", "n2", "n3", "n4")
CONTACTS = {name: Contact(number, "127.0.0.1", number) for number, name in enumerate(NAMES, 1)}
RULES = LookupRules(k=4, alpha=2, hop_budget=10)


class Middle:
    """Dice that always show the middle."""

    def random(self) -> float:
        return 0.5


class ShownLookup(Lookup):
    """The real lookup; it may start several probes in one step, and each is shown."""

    def _start(self, path: SearchPath, candidate: Candidate, now: float, *, hedge: bool) -> Probe:
        probe = super()._start(path, candidate, now, hedge=hedge)
        weave.shown()
        return probe


class ForgetfulLookup(ShownLookup):
    """Takes whoever is named for new, also those it has asked: the planted bug."""

    def answered(self, peer: int, now: float, contacts: list[Contact], *, verifying: bool = False) -> None:
        super().answered(peer, now, contacts, verifying=verifying)
        for contact in contacts:
            candidate = self._paths[0].known[contact.id]
            if candidate.state is ProbeState.ANSWERED:
                candidate.state = ProbeState.NOT_YET
                self._answers.pop(contact.id, None)


@dataclass
class Search:
    """The lookup, and what the nodes will say: whom each names, and who never answers."""

    lookup: Lookup
    names: dict[str, tuple[str, ...]]
    dead: frozenset[str]
    probes: list[asyncio.Task[None]] = field(default_factory=list)

    def view(self) -> dict[str, object]:
        """Show the state in the words of Lookup.tla."""
        known = self.lookup._paths[0].known

        def those(*states: ProbeState) -> set[str]:
            return {NAMES[number - 1] for number, each in known.items() if each.state in states}

        return {
            "known": {NAMES[number - 1] for number in known},
            "asked": {NAMES[number - 1] for number, each in known.items() if each.state is not ProbeState.NOT_YET},
            "flight": {NAMES[number - 1] for number in self.lookup.in_flight},
            "answered": those(ProbeState.ANSWERED),
            "failed": those(ProbeState.FAILED),
            "done": self.lookup.outcome is not None,
        }

    def advance(self) -> None:
        """Send what the lookup wants sent."""
        for probe in self.lookup.next_probes(0.0):
            self.probes.append(asyncio.ensure_future(self.settle(probe)))

    async def settle(self, probe: Probe) -> None:
        """Be one node that is asked."""
        await asyncio.sleep(0)
        peer = probe.contact.id
        name = NAMES[peer - 1]
        if name in self.dead:
            self.lookup.failed(peer, 0.0, ProbeFailure.TIMEOUT, Middle())
        else:
            self.lookup.answered(peer, 0.0, [CONTACTS[other] for other in self.names.get(name, ())])
        weave.shown()
        self.advance()


async def search(
    names: dict[str, tuple[str, ...]], dead: frozenset[str] = frozenset(), *, forgets: bool = False
) -> str:
    """Look for the nearest from one node to the end; nobody is asked twice, and everybody heard of is settled."""
    made = ForgetfulLookup if forgets else ShownLookup
    lookup = made(0, Goal.NODES, RULES, PeerBook(), now=0.0, deadline_at=100.0)
    lookup.begin([CONTACTS["n1"]])
    found = Search(lookup, names, dead)
    weave.view(found.view)
    weave.always(lambda: len(lookup.in_flight) <= RULES.alpha, "at most alpha probes in flight")
    found.advance()
    while lookup.outcome is None:
        await asyncio.wait([probe for probe in found.probes if not probe.done()])
    for probe in found.probes:
        probe.result()
    assert lookup.outcome.ending is LookupEnd.EXHAUSTED
    return ",".join(str(contact.id) for contact in lookup.outcome.nearest)
