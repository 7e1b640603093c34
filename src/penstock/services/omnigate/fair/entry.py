"""The entries, tenants and classes of the fair queue. Pure."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import Final

from penstock.services.omnigate.fair.chain import Chain, ChainNode
from penstock.services.omnigate.fair.rounds import Flow, Rounds

READS_SHARE: Final = 8
"""The last eighth of a class's places is for reads."""
LEAST_PLACES: Final = 16
"""Places every class has, however small its weight."""


class EntryState(enum.Enum):
    """Where an entry is."""

    NEW = "new"
    WAITING = "waiting"  # holds a place in its class's queue
    RUNNING = "running"  # holds a slot
    PARKED = "parked"  # admitted, waits for something outside, holds neither
    RETURNING = "returning"  # parked until now, waits for a slot; its place is the parked one
    OVER = "over"


class Tenant(Flow):
    """One tenant of one class. It is kept while it has entries, and for a while after its last one."""

    __slots__ = ("entries", "generation", "key", "live", "parked", "seen_at", "taken", "waiting")

    def __init__(self, key: tuple[str, Hashable], quantum: int, generation: int) -> None:
        super().__init__(quantum)
        self.key = key
        self.entries: Chain[QueueEntry] = Chain()
        self.waiting = 0
        self.parked = 0
        # Entries not over yet; at zero it stands in the queue's chain of idle tenants.
        self.live = 0
        # Requests that found a slot or a place, since it was made: for whoever shows how busy it is.
        self.taken = 0
        self.seen_at = 0.0
        # A settlement from before its debts were forgiven finds another number and is dropped.
        self.generation = generation


class TrafficClass(Flow):
    """One class: a weight, its places, and its tenants in rounds of their own."""

    __slots__ = ("capacity", "dropped", "name", "own_slots", "rounds", "running", "tenants", "waiting", "weight")

    def __init__(self, name: str, weight: int, quantum_bytes: int, *, capacity: int, own_slots: int = 0) -> None:
        """With `own_slots` its entries run beside the others, at most so many, and take no slot from them."""
        super().__init__(weight * quantum_bytes)
        self.name = name
        self.weight = weight
        self.capacity = capacity
        self.own_slots = own_slots
        self.rounds: Rounds[Tenant] = Rounds()
        self.tenants: dict[Hashable, Tenant] = {}
        # Entries that hold a place, entries that hold a slot, and arrivals that found no place.
        self.waiting = 0
        self.running = 0
        self.dropped = 0

    @property
    def scarce(self) -> bool:
        """Tell whether so few places are left that they are kept for reads."""
        return (self.capacity - self.waiting) * READS_SHARE < self.capacity

    def has_place(self, tenant: Tenant) -> bool:
        """Tell whether this tenant may wait: only while its own queue is shorter than what is free for all."""
        return tenant.waiting < self.capacity - self.waiting


class QueueEntry(ChainNode):
    """One request in the fair queue. It belongs to one class and one tenant at a time."""

    __slots__ = ("charged", "class_", "cost", "due", "generation", "owner", "state")

    class_: TrafficClass
    owner: Tenant

    def __init__(self) -> None:
        """Make an entry without an owner; `FairQueue.arrive` sets class and tenant."""
        super().__init__()
        self.state = EntryState.NEW
        # What a turn of it is expected to cost, and what its turns were charged so far.
        self.cost = 0
        self.charged = 0
        self.due = 0.0
        self.generation = 0


def shares(weights: Mapping[str, int], total: int) -> dict[str, int]:
    """Cut `total` places into fixed shares by weight, at least 16 each, that add up to it exactly.

    Where the least share does not fit for all, everybody gets the same.
    """
    least = min(LEAST_PLACES, total // len(weights))
    poor: set[str] = set()
    while True:
        rest = total - least * len(poor)
        weight = sum(weights[name] for name in weights if name not in poor)
        below = {name for name in weights if name not in poor and rest * weights[name] < least * weight}
        if not below:
            break
        poor |= below
    cut = {name: least if name in poor else rest * weights[name] // weight for name in weights}
    for name in sorted(weights, key=lambda name: (-weights[name], name))[: total - sum(cut.values())]:
        cut[name] += 1
    return cut
