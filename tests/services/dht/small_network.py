"""A network of tables on a virtual clock: enough to drive one lookup and to know the truth it should find."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random

from penstock.services.dht.core.bucket import Bucket
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.ids import BUCKETS, bucket_of
from penstock.services.dht.core.lookup import Goal, Lookup, LookupOutcome, LookupRules, ProbeFailure
from penstock.services.dht.core.peer_book import PeerBook
from penstock.services.dht.core.table import RoutingTable
from tests.services.dht.making import contacts

RTT_S = 0.002
RPC_TIMEOUT_S = 1.5


@dataclass(frozen=True)
class Said:
    """As much of a record as a lookup looks at."""

    publisher: int
    seq: int
    addrs: tuple[str, ...] = ("127.0.0.1:1",)


@dataclass
class SmallNetwork:
    """Nodes, who of them is dead or busy, and what they hold."""

    rng: Random
    members: list[Contact]
    tables: dict[int, RoutingTable]
    dead: set[int] = field(default_factory=set)
    busy: dict[int, int] = field(default_factory=dict)
    values: dict[int, list[Said]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    now: float = 0.0
    in_flight_peak: int = 0

    @classmethod
    def of(cls, rng: Random, count: int, k: int = 20) -> SmallNetwork:
        """Give every node a table filled with everybody, in random order."""
        members = contacts(rng, count)
        tables = {}
        for own in members:
            buckets = [Bucket(k) for _ in range(BUCKETS)]
            for other in rng.sample(members, count):
                if other is not own:
                    buckets[bucket_of(own.id, other.id)].insert(other, 0.0)
            table = tables[own.id] = RoutingTable(own.id)
            for index, bucket in enumerate(buckets):
                table.publish(index, bucket.view())
        return cls(rng, members, tables)

    def nearest(self, target: int, count: int, without: int) -> list[int]:
        """Return the truth: the nearest live nodes."""
        live = [each.id for each in self.members if each.id not in self.dead and each.id != without]
        return sorted(live, key=lambda node: node ^ target)[:count]

    def look(
        self,
        start: int,
        target: int,
        goal: Goal = Goal.NODES,
        *,
        rules: LookupRules | None = None,
        limit: int = 20,
        paths: int = 1,
        deadline_s: float = 10.0,
        book: PeerBook | None = None,
    ) -> Lookup:
        """Run one lookup to its end."""
        rules = rules or LookupRules()
        began = self.now
        lookup = Lookup(
            target, goal, rules, book or PeerBook(), now=began, deadline_at=began + deadline_s, limit=limit, paths=paths
        )
        lookup.begin(self.tables[start].closest(target, rules.k))
        due: list[tuple[float, int, int]] = []
        sent = 0
        for _ in range(10_000):
            for probe in lookup.next_probes(self.now):
                sent += 1
                dead = probe.contact.id in self.dead
                took = RPC_TIMEOUT_S if dead else RTT_S * self.rng.uniform(0.5, 1.5)
                heapq.heappush(due, (self.now + took, sent, probe.contact.id))
                self.asked.append(probe.contact.id)
            self.in_flight_peak = max(self.in_flight_peak, len(lookup.in_flight))
            if lookup.outcome is not None:
                return lookup
            self.now = min(lookup.wake_at, due[0][0]) if due else lookup.wake_at
            while due and due[0][0] <= self.now:
                self._deliver(lookup, heapq.heappop(due)[2], start)
            lookup.tick(self.now)
        raise AssertionError("the lookup does not end")

    def _deliver(self, lookup: Lookup, peer: int, start: int) -> None:
        if peer in self.dead:
            lookup.failed(peer, self.now, ProbeFailure.TIMEOUT, self.rng)
        elif self.busy.get(peer, 0):
            self.busy[peer] -= 1
            lookup.failed(peer, self.now, ProbeFailure.REFUSED, self.rng)
        else:
            records = self.values.get(peer, []) if lookup.goal is not Goal.NODES else []
            named = self.tables[peer].closest(lookup.target, lookup.rules.k, {start})
            lookup.answered(peer, self.now, named, verifying=bool(records))
            if records:
                lookup.verified(peer, self.now, records)


def outcome_of(lookup: Lookup) -> LookupOutcome:
    """Return the outcome of a lookup that has ended."""
    assert lookup.outcome is not None
    return lookup.outcome
