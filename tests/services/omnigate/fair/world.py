"""A small model around the fair queue: tenants that send, slots that serve, a clock that jumps to the next event."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.services.omnigate.fair.entry import EntryState, QueueEntry
from penstock.services.omnigate.fair.queue import ArrivalOutcome, FairMeasures, FairQueue

WEIGHTS = {"anon": 1, "authed": 5, "internal": 10}
KIB = 1024


class Unit(QueueEntry):
    """An entry that remembers what it will really cost."""

    __slots__ = ("arrived_at", "number", "real", "sender")

    def __init__(self, sender: Sender, estimate: int, real: int, due: float) -> None:
        super().__init__()
        self.sender = sender
        self.cost = estimate
        self.real = real
        self.due = due
        self.arrived_at = 0.0
        self.number = 0


@dataclass(eq=False)
class Sender:
    """One tenant: how it behaves, and what it got."""

    name: str
    class_name: str = "authed"
    estimate: int = 4 * KIB
    real: int = 4 * KIB
    # Open loop: one every so many seconds. Closed loop: so many at once, each followed by the next.
    every_s: float = 0.0
    at_once: int = 0
    deadline_s: float = 1e9
    served: int = 0
    served_cost: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)


class World:
    """Runs senders against a queue whose slots serve one unit each in `service_s` times its real cost over 4 KiB."""

    def __init__(self, queue: FairQueue, *, service_s: float = 0.02, by_cost: bool = False) -> None:
        self.queue = queue
        self.now = 0.0
        self.service_s = service_s
        self.by_cost = by_cost
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self.highest_waiting = 0

    def at(self, when: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when, next(self._order), call))

    def add(self, sender: Sender) -> Sender:
        if sender.every_s:
            self.at(self.now, lambda: self._clockwork(sender))
        for _ in range(sender.at_once):
            self.at(self.now, lambda: self.send(sender))
        return sender

    def _clockwork(self, sender: Sender) -> None:
        self.send(sender)
        self.at(self.now + sender.every_s, lambda: self._clockwork(sender))

    def send(self, sender: Sender) -> Unit:
        unit = Unit(sender, sender.estimate, sender.real, self.now + sender.deadline_s)
        unit.arrived_at = self.now
        class_ = self.queue.classes[sender.class_name]
        outcome = self.queue.arrive(unit, class_, sender.name, self.now)
        if outcome is ArrivalOutcome.RUNS:
            self._start(unit)
        elif outcome is not ArrivalOutcome.WAITS:
            sender.refused[outcome.value] += 1
            if sender.at_once:
                self.at(self.now + self.service_s, lambda: self.send(sender))
        self.highest_waiting = max(self.highest_waiting, self.queue.waiting)
        return unit

    def _start(self, unit: Unit) -> None:
        unit.sender.waits_s.append(self.now - unit.arrived_at)
        took_s = self.service_s * (unit.real / (4 * KIB) if self.by_cost else 1)
        self.at(self.now + took_s, lambda: self._finish(unit))

    def _finish(self, unit: Unit) -> None:
        if unit.state is not EntryState.RUNNING:
            return
        sender = unit.sender
        sender.served += 1
        sender.served_cost += unit.real
        self.queue.end(unit, unit.real)
        if sender.at_once:
            self.send(sender)
        self.dispatch()

    def dispatch(self) -> None:
        while (entry := self.queue.next()) is not None:
            assert isinstance(entry, Unit)
            self._start(entry)

    def run(self, until: float) -> None:
        """Let everything happen up to an instant; the queue's statistics tick four times a second."""
        if not self._events or self._events[0][0] > 1e8:
            return
        self.at(self.now, self._tick)
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heapq.heappop(self._events)
            call()
            # Work conserving: nobody waits while a slot is free.
            assert not (self.queue.waiting and self.queue.running < self.queue.limit)
        self.now = until

    def _tick(self) -> None:
        self.queue.tick(self.now)
        self.at(self.now + 0.25, self._tick)


def make_queue(limit: int = 32, **measures: object) -> FairQueue:
    """Make a queue of the three classes."""
    return FairQueue(FairMeasures(**{"weights": WEIGHTS, **measures}), limit)  # type: ignore[arg-type]
