"""The fair queue: classes share by weight, tenants share inside a class, a flood delays only its own tenant. Pure.

Each method is one synchronous step that is handed `now`. An entry that waits is never pushed out: a request that finds
no place is refused on arrival. An entry holds a place while it waits and a slot while it runs. It is charged an
estimate when it starts, and the difference to its real cost when it ends.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.services.omnigate.fair.chain import Chain
from penstock.services.omnigate.fair.entry import (
    EntryState,
    QueueEntry,
    Tenant,
    TrafficClass,
    shares,
)
from penstock.services.omnigate.fair.pace import TurnRate
from penstock.services.omnigate.fair.rounds import DEBT_ROUNDS, Rounds

DEBT_KEPT_S: Final = 10.0
"""A debt is forgotten so long after its tenant's last request."""
PARKED_SHARE: Final = 4
"""A tenant may park a quarter of what may be parked at all."""


class ArrivalOutcome(enum.Enum):
    """What happened to an arrival."""

    RUNS = "runs"
    WAITS = "waits"
    FULL = "full"  # no place in its class, or none that its tenant may still take
    HOPELESS = "hopeless"  # its turn would come after its deadline


@dataclass(frozen=True, kw_only=True, slots=True)
class FairMeasures:
    """The sizes of the queue."""

    weights: Mapping[str, int]
    capacity: int = 512
    quantum_bytes: int = 64 * 1024
    max_parked: int = 4096
    tenants_max: int = 10_000
    # Classes beside the slots of the others: name -> how many of it run at once.
    own_slots: Mapping[str, int] = field(default_factory=dict)


class FairQueue:
    """The entries that run, wait or are parked."""

    __slots__ = (
        "_generation", "_idle", "_rounds", "classes", "limit", "measures", "pace", "parked", "running", "tenants",
        "waiting",
    )  # fmt: skip

    def __init__(self, measures: FairMeasures, limit: int) -> None:
        """Make the classes; `limit` is how many may run at once, and may be changed at any time."""
        self.measures = measures
        places = shares(measures.weights, measures.capacity)
        self.classes = {
            name: TrafficClass(
                name,
                weight,
                measures.quantum_bytes,
                capacity=places[name],
                own_slots=measures.own_slots.get(name, 0),
            )
            for name, weight in measures.weights.items()
        }
        self._rounds: Rounds[TrafficClass] = Rounds()
        self._idle: Chain[Tenant] = Chain()
        self._generation = 0
        self.limit = limit
        self.pace = TurnRate()
        # Of the classes that share slots: entries waiting (returning ones too) and running. Parked are all that are.
        self.waiting = 0
        self.running = 0
        self.parked = 0
        self.tenants = 0

    # --- arrival ---------------------------------------------------------------------------------------

    def arrive(self, entry: QueueEntry, class_: TrafficClass, key: Hashable, now: float) -> ArrivalOutcome:
        """Take a new entry with its `cost` and `due`: it runs at once, waits, or is refused and left as it was."""
        tenant = class_.tenants.get(key) or self._tenant(class_, key)
        if tenant.deficit < 0 and now - tenant.seen_at >= DEBT_KEPT_S:
            self._forgive(tenant)
        tenant.seen_at = now
        outcome = self._judge(entry, class_, tenant, now)
        if outcome is ArrivalOutcome.RUNS or outcome is ArrivalOutcome.WAITS:
            if not tenant.live and tenant.after is not None:
                tenant.unlink()
            tenant.live += 1
            tenant.taken += 1
            entry.class_, entry.owner, entry.generation = class_, tenant, tenant.generation
            if outcome is ArrivalOutcome.RUNS:
                self._pass_by(entry)
            else:
                entry.state = EntryState.WAITING
                class_.waiting += 1
                tenant.waiting += 1
                self._line_up(entry)
        else:
            class_.dropped += 1
            if not tenant.live and tenant.after is None:
                self._idle.append(tenant)
        return outcome

    def _judge(self, entry: QueueEntry, class_: TrafficClass, tenant: Tenant, now: float) -> ArrivalOutcome:
        if self._passes(class_):
            return ArrivalOutcome.RUNS
        if not class_.has_place(tenant):
            return ArrivalOutcome.FULL
        if self.predicted_s(class_, tenant, tenant.waiting) > entry.due - now:
            return ArrivalOutcome.HOPELESS
        return ArrivalOutcome.WAITS

    def _passes(self, class_: TrafficClass) -> bool:
        """Tell whether an arrival may run at once: a slot is free and nobody waits for one.

        A class with slots of its own is worked off at its worker's pace alone.
        """
        return self.running < self.limit and not self.waiting and not class_.own_slots

    def predicted_s(self, class_: TrafficClass, tenant: Tenant, ahead: int) -> float:
        """Predict in how many seconds an entry behind `ahead` others of its tenant runs; 0 if nothing is known."""
        if class_.own_slots:
            return 0.0
        tenants = class_.rounds.waiting + (tenant.waiting == 0)
        weight = sum(each.weight for each in self.classes.values() if each.rounds.waiting and not each.own_slots)
        if not class_.rounds.waiting:
            weight += class_.weight
        turns = (ahead + 1) * tenants * weight / class_.weight
        return self.pace.wait_s(min(turns, self.waiting + 1))

    def _tenant(self, class_: TrafficClass, key: Hashable) -> Tenant:
        """Return the tenant, making it if needed. Idle tenants make room; the others are bounded by the entries."""
        if self.tenants >= self.measures.tenants_max:
            idle = self._idle.first
            if idle is not None:
                self._forget(idle)
        self._generation += 1
        tenant = class_.tenants[key] = Tenant((class_.name, key), self.measures.quantum_bytes, self._generation)
        self.tenants += 1
        return tenant

    def _line_up(self, entry: QueueEntry) -> None:
        class_, tenant = entry.class_, entry.owner
        if tenant.entries.first is None:
            if not class_.rounds.waiting and not class_.own_slots:
                self._rounds.join(class_)
            class_.rounds.join(tenant)
        tenant.entries.append(entry)
        if not class_.own_slots:
            self.waiting += 1

    def _pass_by(self, entry: QueueEntry) -> None:
        """Run an entry that found nobody waiting. What it costs beyond a turn is still a debt."""
        entry.owner.pass_by(entry.cost)
        entry.class_.pass_by(entry.cost)
        self._run(entry)

    def _run(self, entry: QueueEntry) -> None:
        entry.charged += entry.cost
        entry.state = EntryState.RUNNING
        entry.class_.running += 1
        if not entry.class_.own_slots:
            self.running += 1

    # --- dispatch --------------------------------------------------------------------------------------

    def next(self) -> QueueEntry | None:
        """Give a free slot to the entry whose turn it is; None if no slot is free or nobody waits."""
        if self.running >= self.limit:
            return None
        class_ = self._rounds.head()
        if class_ is None:
            return None
        self.pace.turns += 1
        entry = self._take(class_)
        class_.charge(entry.cost)
        if not class_.rounds.waiting:
            self._rounds.leave(class_)
        self.waiting -= 1
        return entry

    def next_of(self, class_: TrafficClass) -> QueueEntry | None:
        """Give one of a class's own slots to its next tenant."""
        if class_.running >= class_.own_slots or not class_.rounds.waiting:
            return None
        return self._take(class_)

    def _take(self, class_: TrafficClass) -> QueueEntry:
        tenant = class_.rounds.head()
        assert tenant is not None, "a class waits only while a tenant of it does"
        entry = tenant.entries.first
        assert entry is not None, "a tenant waits only while an entry of it does"
        entry.unlink()
        self._give_place(entry)
        tenant.charge(entry.cost)
        if tenant.entries.first is None:
            class_.rounds.leave(tenant)
        self._run(entry)
        return entry

    def _give_place(self, entry: QueueEntry) -> None:
        if entry.state is EntryState.WAITING:
            entry.class_.waiting -= 1
            entry.owner.waiting -= 1
        else:
            self._unpark(entry)

    # --- parking ---------------------------------------------------------------------------------------

    def park(self, entry: QueueEntry) -> bool:
        """Take the slot back from a running entry that will wait for something; False if too many are parked."""
        tenant, most = entry.owner, self.measures.max_parked
        if self.parked >= most or tenant.parked >= max(1, most // PARKED_SHARE):
            return False
        self._give_slot(entry)
        entry.state = EntryState.PARKED
        self.parked += 1
        tenant.parked += 1
        return True

    def unpark(self, entry: QueueEntry) -> bool:
        """Ask for a slot again; True if one was free at once. If not, the entry waits in the place it was parked in."""
        tenant, class_ = entry.owner, entry.class_
        entry.generation = tenant.generation
        if self._passes(class_):
            self._unpark(entry)
            self._pass_by(entry)
            return True
        entry.state = EntryState.RETURNING
        self._line_up(entry)
        return False

    def rejoin(self, entry: QueueEntry) -> None:
        """Put a running entry back into the queue because its turn is over, however many its tenant has parked."""
        self._give_slot(entry)
        self.parked += 1
        entry.owner.parked += 1
        entry.generation = entry.owner.generation
        entry.state = EntryState.RETURNING
        self._line_up(entry)

    def _unpark(self, entry: QueueEntry) -> None:
        self.parked -= 1
        entry.owner.parked -= 1

    # --- the end ---------------------------------------------------------------------------------------

    def pay(self, entry: QueueEntry, cost: int, now: float) -> None:
        """Charge what a running entry has cost so far: a stream is charged while it lasts, not only at its end."""
        if entry.state is EntryState.RUNNING or entry.state is EntryState.PARKED:
            # It is heard of now: what it owes is not forgotten while it goes on.
            entry.owner.seen_at = now
            entry.generation = entry.owner.generation
            self._settle(entry, cost)

    def end(self, entry: QueueEntry, cost: int = 0) -> None:
        """Give back the entry's place or slot; if it ran, charge what it cost beyond the estimate.

        It may be called in any state, and does nothing the second time.
        """
        if entry.state is EntryState.OVER or entry.state is EntryState.NEW:
            return
        if entry.state is EntryState.RUNNING:
            self._give_slot(entry)
            self._settle(entry, cost)
        elif entry.state is EntryState.PARKED:
            self._unpark(entry)
            self._settle(entry, cost)
        else:
            ran = entry.state is EntryState.RETURNING
            self._depart(entry)
            if ran:
                self._settle(entry, cost)
        entry.state = EntryState.OVER
        tenant = entry.owner
        tenant.live -= 1
        if not tenant.live:
            self._idle.append(tenant)

    def _give_slot(self, entry: QueueEntry) -> None:
        entry.class_.running -= 1
        if not entry.class_.own_slots:
            self.running -= 1

    def _settle(self, entry: QueueEntry, cost: int) -> None:
        class_, tenant = entry.class_, entry.owner
        extra = min(cost - entry.charged, DEBT_ROUNDS * self.measures.quantum_bytes)
        if extra <= 0:
            return
        entry.charged += extra
        class_.charge(extra)
        # Nobody's turn is cut short here: who stands in a round finds out when it comes.
        if tenant.generation == entry.generation:
            tenant.charge(extra)

    def _depart(self, entry: QueueEntry) -> None:
        """Take an entry out of the queue, wherever it is in it."""
        class_, tenant = entry.class_, entry.owner
        entry.unlink()
        self._give_place(entry)
        if tenant.entries.first is None:
            class_.rounds.leave(tenant)
            if not class_.rounds.waiting and not class_.own_slots:
                self._rounds.leave(class_)
        if not class_.own_slots:
            self.waiting -= 1

    # --- housekeeping ----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Measure the pace, and forget tenants without entries."""
        self.pace.tick(now, backlogged=self.waiting > 0)
        while (tenant := self._idle.first) is not None and now - tenant.seen_at >= DEBT_KEPT_S:
            self._forget(tenant)

    def hopeless(self, now: float) -> Iterator[QueueEntry]:
        """List the waiting entries whose turn will probably not come before their deadline."""
        for class_ in self.classes.values() if self.pace.per_s else ():
            if class_.own_slots:
                continue
            for tenant in class_.rounds.flows():
                for ahead, entry in enumerate(tenant.entries.nodes()):
                    late = self.predicted_s(class_, tenant, ahead) > entry.due - now
                    if late and entry.state is EntryState.WAITING:
                        yield entry

    def _forgive(self, tenant: Tenant) -> None:
        self._generation += 1
        tenant.generation = self._generation
        tenant.deficit = 0

    def _forget(self, tenant: Tenant) -> None:
        tenant.unlink()
        name, key = tenant.key
        del self.classes[name].tenants[key]
        self.tenants -= 1
