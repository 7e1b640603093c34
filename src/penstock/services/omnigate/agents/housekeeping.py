"""Housekeeping.

Four times a second it trims what is stale, turns the queue's statistics over and samples the gauges.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.services.omnigate.gate.ticket import GateTicket

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory, Row
    from penstock.kernel.metrics import Gauge
    from penstock.services.omnigate.fair.entry import TrafficClass
    from penstock.services.omnigate.gate.gate import AdmissionGate

SAMPLE_S: Final = 0.25


class Housekeeping:
    """The agent beside the gate."""

    def __init__(self, inventory: Inventory, gate: AdmissionGate) -> None:
        """Declare the queues and what is sampled of them."""
        self._gate = gate
        self._monotonic = inventory.clock.monotonic
        self._gauges: list[tuple[Gauge, partial[float]]] = []
        self._declare_queues(inventory)
        self._declare_gauges(inventory)

    def _declare_queues(self, inventory: Inventory) -> None:
        """List the class queues, and their sum as the one queue they stand for."""
        classes = self._gate.queue.classes
        capacity = sum(each.capacity for each in classes.values())
        declare = partial(inventory.queue, producers="listener", consumers="worker_pool")
        declare("work", GateTicket, capacity=capacity, live=self._all)
        for name, each in classes.items():
            declare(f"work.{name}", GateTicket, capacity=each.capacity, live=partial(_one, each))
        dropped = inventory.metrics.watched("queue_dropped_total", "Items refused or dropped.", queue="work")
        dropped.append(lambda: sum(each.dropped for each in classes.values()))
        queue = self._gate.queue
        inventory.limit("fair_queue.inflight", queue.limit, "requests at once; none free: they wait", self._slots)
        inventory.limit("fair_queue.parked", queue.measures.max_parked, "full: answered at once", self._parked)

    def _declare_gauges(self, inventory: Inventory) -> None:
        metrics, queue = inventory.metrics, self._gate.queue
        self._sample(metrics.gauge("queue_depth", "Items waiting in a channel.", queue="work"), self._depth)
        self._sample(metrics.gauge("fq_limit", "Requests that may run at once."), lambda: queue.limit)
        self._sample(
            metrics.gauge("fq_parked", "Long polls and streams that wait without a slot."), lambda: queue.parked
        )
        self._sample(metrics.gauge("fq_tenants", "Tenants remembered."), lambda: queue.tenants)
        for name, each in queue.classes.items():
            of_class: dict[str, Any] = {"class": name}
            self._sample(
                metrics.gauge("fq_waiting", "Requests waiting for a slot.", **of_class), _reader(each, "waiting")
            )
            self._sample(
                metrics.gauge("fq_inflight", "Requests that hold a slot.", **of_class), _reader(each, "running")
            )
            text = "What a class may still spend in its turn, in bytes; below zero: what it owes."
            self._sample(metrics.gauge("fq_tokens", text, **of_class), _reader(each, "deficit"))

    def _sample(self, gauge: Gauge, read: Any) -> None:  # noqa: ANN401 - whatever gives a number
        self._gauges.append((gauge, partial(read)))

    def _depth(self) -> int:
        return sum(each.waiting for each in self._gate.queue.classes.values())

    def _all(self) -> Row:
        dropped = sum(each.dropped for each in self._gate.queue.classes.values())
        return {"depth": self._depth(), "dropped": dropped}

    def _slots(self) -> Row:
        queue = self._gate.queue
        return {"capacity": queue.limit, "in_use": queue.running, "per_s": round(queue.pace.per_s, 1)}

    def _parked(self) -> Row:
        return {"in_use": self._gate.queue.parked}

    async def run(self, child: Child) -> None:
        """Tick until the service drains; what still waits then is worked off without it."""
        while not await child.shutdown.sleep(SAMPLE_S):
            self.tick()

    def tick(self) -> None:
        """Do one round."""
        self._gate.tick(self._monotonic())
        for gauge, read in self._gauges:
            gauge.value = read()


def _one(each: TrafficClass) -> Row:
    return {"depth": each.waiting, "dropped": each.dropped, "weight": each.weight, "running": each.running}


def _reader(each: TrafficClass, name: str) -> Any:  # noqa: ANN401 - whatever gives a number
    return lambda: getattr(each, name)
