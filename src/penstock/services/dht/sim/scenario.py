"""One run of the simulator: publish keys, look them up over an hour, with churn, a mass death, a partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from penstock.services.dht.core.ids import ID_BITS
from penstock.services.dht.core.lookup import Goal, Lookup, LookupOutcome
from penstock.services.dht.sim.network import SimNetwork
from penstock.services.dht.sim.node import SimNode, SimRecord
from penstock.services.dht.sim.population import make_node, populate
from penstock.services.dht.sim.walk import SimWalk

if TYPE_CHECKING:
    from penstock.services.dht.sim.options import SimOptions

# Before the hour begins keys are published; lookups start after that.
PUBLISH_S = 60.0
SLICES = 200
JOIN_SEEDS = 3
PARTITION_S = (600.0, 900.0)


@dataclass(frozen=True, slots=True)
class Looked:
    """One lookup as it went."""

    at_s: float
    took_s: float
    hops: int  # a failure counts as one more than the budget
    found: bool
    messages: int
    hedges: int
    groups: int


@dataclass(slots=True)
class SimResult:
    """Everything one run measured."""

    options: SimOptions
    looked: list[Looked] = field(default_factory=list)
    joins: int = 0
    leaves: int = 0
    killed: int = 0
    messages: int = 0
    size_estimate: float = 0.0


class Scenario:
    """Runs the options to their end."""

    def __init__(self, options: SimOptions) -> None:
        """Draw everything from the seed."""
        self.options = options
        self.rng = Random(f"penstock dht sim {options.seed}")  # noqa: S311 - a simulation must be repeatable
        self.network = SimNetwork(options, self.rng)
        self.result = SimResult(options)
        self._keys: list[int] = []
        self._live: list[SimNode] = []
        self._kill_at = PUBLISH_S + options.dead_at_s

    def run(self, progress: Callable[[float], None] = lambda _share: None) -> SimResult:
        """Simulate; `progress` hears the share that is done."""
        populate(self.network, self.rng)
        self._live = list(self.network.nodes.values())
        self._publish()
        self._plan()
        span_s = PUBLISH_S + self.options.span_s + self.options.deadline_s
        for step in range(1, SLICES + 1):
            self.network.run(span_s * step / SLICES)
            progress(step / SLICES)
        result = self.result
        result.messages = self.network.messages
        estimates = sorted(node.size.nodes for node in self._live if node.size.nodes > self.options.k)
        result.size_estimate = estimates[len(estimates) // 2] if estimates else 0.0
        return result

    # --- publishing -----------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish every key from a random node, spread over the first minute: a walk, then a store at the k nearest."""
        honest = [node for node in self._live if not node.hostile]
        for number in range(self.options.keys):
            key, publisher = self.rng.getrandbits(ID_BITS), self.rng.choice(honest)
            self._keys.append(key)
            when = PUBLISH_S / 2 * number / self.options.keys
            self.network.at(when, self._provide, key, publisher)

    def _provide(self, key: int, publisher: SimNode) -> None:
        record = SimRecord(key, publisher.contact.id, 1)

        def store(_lookup: Lookup, outcome: LookupOutcome) -> None:
            for contact in outcome.nearest:
                keeper = self.network.nodes.get(contact.id)
                self.network.messages += 1
                if keeper is not None and keeper.alive and not keeper.hostile:
                    keeper.records[key] = record

        SimWalk(publisher, key, Goal.NODES, store, paths=1 if not self.options.hostile else 3)

    # --- the hour ---------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        options, at = self.options, self.network.at
        for number in range(options.lookups):
            at(PUBLISH_S + options.span_s * (number + 0.5) / options.lookups, self._look_up)
        changes = int(options.churn * options.nodes * options.span_s / 3600.0)
        for _ in range(changes):
            at(PUBLISH_S + self.rng.random() * options.span_s, self._leave)
            at(PUBLISH_S + self.rng.random() * options.span_s, self._join)
        if options.dead:
            at(self._kill_at, self._kill)
        if options.partition:
            at(PUBLISH_S + PARTITION_S[0], self._split, True)
            at(PUBLISH_S + PARTITION_S[1], self._split, False)

    def _draw(self) -> SimNode:
        """Draw a live node; the dead are taken out of the list as they are met."""
        while True:
            index = self.rng.randrange(len(self._live))
            node = self._live[index]
            if node.alive:
                return node
            self._live[index] = self._live[-1]
            self._live.pop()

    def _look_up(self) -> None:
        node = self._draw()
        while node.hostile:
            node = self._draw()
        walks = self.options.walks_instead
        key = self.rng.getrandbits(ID_BITS) if walks else self.rng.choice(self._keys)
        began = self.network.now

        def done(lookup: Lookup, outcome: LookupOutcome) -> None:
            found = bool(outcome.nearest) if walks else bool(lookup.providers())
            hops = outcome.hops if found else lookup.rules.hop_budget + 1
            took = self.network.now - began
            self.result.looked.append(
                Looked(began - PUBLISH_S, took, hops, found, outcome.messages, outcome.hedges, outcome.groups)
            )

        SimWalk(node, key, Goal.NODES if walks else Goal.FIRST, done, paths=self.options.paths)

    def _leave(self) -> None:
        self._draw().alive = False
        self.result.leaves += 1

    def _kill(self) -> None:
        doomed = [node for node in self._live if node.alive]
        for node in self.rng.sample(doomed, int(self.options.dead * len(doomed))):
            node.alive = False
            self.result.killed += 1

    def _split(self, split: bool) -> None:  # noqa: FBT001 - an event's argument
        self.network.split = split

    # --- joining ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Bootstrap as a real node does: walk to the own id from a few seeds, then into every bucket."""
        node = make_node(self.network, self.rng)
        self.network.nodes[node.contact.id] = node
        if node.hostile:
            self.network.hostile.append(node.contact)
        seeds = [self._draw() for _ in range(JOIN_SEEDS)]
        start = [seed.contact for seed in seeds if not seed.natted] or [seeds[0].contact]
        self._live.append(node)
        self.result.joins += 1
        SimWalk(node, node.contact.id, Goal.NODES, lambda _lookup, _outcome: self._fill(node, 0), start=start)

    def _fill(self, node: SimNode, index: int) -> None:
        """Walk into one bucket after the other, as far as the network is estimated to reach."""
        if not node.alive or node.size.nodes / 2 ** (index + 1) < 2:
            return
        target = node.contact.id ^ (1 << ID_BITS - 1 - index) ^ self.rng.getrandbits(ID_BITS - 1 - index)
        SimWalk(node, target, Goal.NODES, lambda _lookup, _outcome: self._fill(node, index + 1))
