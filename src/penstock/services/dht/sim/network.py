"""Virtual time and messages: a heap of events, latencies from places on a map, losses, the dead and the cut off."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.sim.node import SimNode
    from penstock.services.dht.sim.options import SimOptions

# A round trip: both ends' access, and the way between them; some jitter on top.
ACCESS_S = 0.002
ACROSS_S = 0.080
JITTER = 0.1


class SimNetwork:
    """Delivers messages between simulated nodes in virtual time."""

    def __init__(self, options: SimOptions, rng: Random) -> None:
        """Start at time zero with nobody."""
        self.options = options
        self.rng = rng
        self.now = 0.0
        self.nodes: dict[int, SimNode] = {}
        self.hostile: list[Contact] = []
        self.messages = 0
        self.split = False  # whether the partition is in force
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - handed on
        """Have something happen at a time."""
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, call, args))

    def run(self, until: float) -> None:
        """Let everything happen that is due by then."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until:
            self.now, _, call, args = pop(events)
            call(*args)
        self.now = until

    def ask(self, asker: SimNode, contact: Contact, target: int, on_answer: Callable[..., None]) -> None:
        """Send a FIND; `on_answer(contact, began, contacts, values)` is called with None for both after a timeout."""
        self.messages += 1
        began, asked = self.now, self.nodes.get(contact.id)
        if asked is None or not self._reaches(asker, asked):
            self.at(began + self.options.rpc_timeout_s, on_answer, contact, began, None, None)
            return
        round_trip = self._round_trip_s(asker, asked)
        if contact.id not in asker.dialled:
            # Connecting and proving who one is take two more round trips, once.
            asker.dialled.add(contact.id)
            round_trip *= 3
        self.at(began + round_trip / 2, self._arrive, asker, asked, (contact, target, on_answer, began, round_trip / 2))

    def _arrive(self, asker: SimNode, asked: SimNode, question: tuple[Any, ...]) -> None:
        contact, target, on_answer, began, back_s = question
        if not asked.alive:
            self.at(began + self.options.rpc_timeout_s, on_answer, contact, began, None, None)
            return
        contacts, values = asked.answer(target, asker)
        self.at(self.now + back_s, on_answer, contact, began, contacts, values)

    def hostile_near(self, target: int) -> list[Contact]:
        """Name the hostile nodes nearest to a target: they all know each other."""
        return heapq.nsmallest(self.options.k, self.hostile, key=lambda contact: contact.id ^ target)

    def reachable(self, asker: SimNode, contact: Contact) -> bool:
        """Tell whether a ping of a contact would be answered."""
        asked = self.nodes.get(contact.id)
        return asked is not None and self._reaches(asker, asked)

    def _reaches(self, asker: SimNode, asked: SimNode) -> bool:
        if not asked.alive or asked.natted or self.rng.random() < self.options.loss:
            return False
        return not self.split or asker.side == asked.side

    def _round_trip_s(self, one: SimNode, two: SimNode) -> float:
        (x1, y1), (x2, y2) = one.place, two.place
        across = ACROSS_S * math.hypot(x1 - x2, y1 - y2)
        return (2 * ACCESS_S + across) * (1 + JITTER * self.rng.random())
