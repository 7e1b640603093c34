"""The whole way of a routing update on the real code: work, worker, route, bucket writer, and a drain at any moment.

A job of this model is a lookup that met one node alive and then dead: it sends two commands for the same contact. What
the writer must see of it is both, in this order, for every job that was accepted.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock import weave
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Closed
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job, JobLoop
from penstock.services.dht.agents.bucket_writer import BucketWriters, EvictContact, InsertContact, RouteCommand
from penstock.services.dht.core.bucket import Bucket, Insertion
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.table import RoutingTable
from tests.models.drain_model import IGNORES, Middle

__all__ = ["IGNORES", "route"]

NODES = (1 << 255 | 1, 1 << 255 | 2)


class ToldBucket(Bucket):
    """The real bucket; it writes down what was done to it."""

    __slots__ = ("told",)
    told: list[tuple[str, int]]

    def insert(self, contact: Contact, now: float) -> Insertion:
        self.told.append(("insert", contact.id))
        return super().insert(contact, now)

    def evict(self, node_id: int) -> Contact | None:
        self.told.append(("evict", node_id))
        return super().evict(node_id)


async def route(*, workers: int = 2, planted: str = "") -> tuple[tuple[str, int], ...]:
    """Offer two jobs to the workers and stop at any moment.

    Planted: `overtakes` has the second command overtake the first; `writer_first` ends the writer before the workers.
    """
    inventory = Inventory("svc-model", LoopClock())
    work: Channel[Job[int, None]] = inventory.channel("work", Job, capacity=2, full=Full.REFUSE)
    queue: Channel[RouteCommand] = inventory.channel("route", RouteCommand, capacity=2, full=Full.WAIT, wait_s=1.0)
    state: Any = SimpleNamespace(
        options=SimpleNamespace(k=2), table=RoutingTable(0), monotonic=asyncio.get_running_loop().time
    )
    events: Any = SimpleNamespace(say=lambda _name, **_facts: None)
    writers = BucketWriters(state, [queue], events, lambda _contact: None)
    bucket = ToldBucket(2)
    writers._buckets[0], bucket.told = bucket, []

    async def look(node: int) -> None:
        both = (InsertContact(Contact(node, "127.0.0.1", 1)), EvictContact(node))
        for command in reversed(both) if planted == "overtakes" else both:
            await queue.send(command)

    async def run(child: Child) -> None:
        await JobLoop("lookup_worker", work, look, inventory.metrics).run(child.clock.monotonic)

    specs = [
        ChildSpec("bucket_writer", writers.run, drain=Drain.FINISH, consumes=lambda _index: (queue,)),
        ChildSpec("lookup_worker", run, instances=workers, drain=Drain.FINISH, consumes=lambda _index: (work,)),
    ]
    if planted == "writer_first":
        specs.reverse()
    boss = Supervisor(inventory, specs, SupervisorOptions(drain_deadline_s=3.0), rng=Middle())
    with weave.still():
        await boss.start()
    accepted: list[int] = []

    def offer(node: int) -> None:
        try:
            work.try_send(Job(node))
        except Closed:
            return
        accepted.append(node)

    for node in NODES:
        weave.event(offer, node)
    stop = asyncio.get_running_loop().create_future()
    weave.event(stop.set_result, None)
    await stop
    report = await boss.drain()
    assert report.clean, f"cut off: {report.aborted}"
    for node in accepted:
        seen = [what for what, which in bucket.told if which == node]
        assert seen == ["insert", "evict"], f"the writer saw {seen} of a job that was accepted"
    assert not len(bucket)
    return tuple(bucket.told)
