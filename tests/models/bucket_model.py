"""A bucket behind its queue on the real code: the route channel, the bucket's one writer, and the supervisor's drain.

The producers are the model's own: contacts are offered, one dies and is doubted, and the service stops at any moment.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from penstock import weave
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Closed, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.services.dht.agents.bucket_writer import (
    BucketWriters,
    EvictContact,
    InsertContact,
    RouteCommand,
)
from penstock.services.dht.core.bucket import Bucket, Insertion
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.table import RoutingTable
from tests.models.drain_model import IGNORES, Middle

__all__ = ["IGNORES", "bucket"]

K = 2
CAPACITY = 2
NODES = {"n1": (1 << 255) + 1, "n2": (1 << 255) + 2, "n3": (1 << 255) + 3}
NAMES = {number: name for name, number in NODES.items()}


@dataclass
class World:
    """What the model keeps count of."""

    queue: Channel[RouteCommand]
    alive: set[str] = field(default_factory=lambda: set(NODES))
    batch: list[RouteCommand] = field(default_factory=list)  # taken from the queue, and not yet begun
    bucket: ShownBucket | None = None

    def view(self) -> dict[str, object]:
        """Show the state in the words of Bucket.tla: a command is taken when the writer begins with it."""
        assert self.bucket is not None
        return {
            "queue": tuple(_told(command) for command in [*self.batch, *self.queue._items]),
            "bucket": tuple(NAMES[node] for node in self.bucket._entries),
            "spares": {NAMES[node] for node in self.bucket._spares},
            "alive": set(self.alive),
        }

    async def recv_many(self, count: int) -> list[RouteCommand]:
        """Be the queue that the writer reads from."""
        self.batch = await self.queue.recv_many(count)
        return list(self.batch)

    def begun(self) -> None:
        """Note that the writer begins with the next command of its batch; the one before it was applied."""
        weave.shown()
        if self.batch:
            self.batch.pop(0)
        weave.shown()

    def offer(self, name: str) -> None:
        """Offer a contact that answered."""
        if name in self.alive:
            self._send(InsertContact(Contact(NODES[name], "127.0.0.1", 1)))

    def die(self, name: str) -> None:
        """Have a contact die, and be found dead."""
        self.alive.discard(name)
        weave.shown()
        if self.bucket is not None and NODES[name] in self.bucket:
            self._send(EvictContact(NODES[name]))

    def _send(self, command: RouteCommand) -> None:
        try:
            self.queue.try_send(command)
        except PenstockError:
            return


def _told(command: RouteCommand) -> tuple[str, str]:
    if isinstance(command, InsertContact):
        return "insert", NAMES[command.contact.id]
    return "evict", NAMES[command.node_id]


class ShownBucket(Bucket):
    """The real bucket; each command shows that it was taken before it is applied."""

    __slots__ = ("world",)
    world: World

    def insert(self, contact: Contact, now: float) -> Insertion:
        self.world.begun()
        return super().insert(contact, now)

    def evict(self, node_id: int) -> Contact | None:
        self.world.begun()
        return super().evict(node_id)


class HastyWriters(BucketWriters):
    """Let go of the loop between looking and acting, which only one writer may do: the planted bug."""

    async def run(self, child: Child) -> None:
        queue, bucket = self._routes[0], self._buckets[0]
        assert isinstance(bucket, ShownBucket)
        while True:
            try:
                [command] = await queue.recv_many(1)
            except Closed:
                return
            bucket.world.begun()
            held = {*bucket._entries}
            await asyncio.sleep(0)
            if isinstance(command, EvictContact):
                Bucket.evict(bucket, command.node_id)
            elif isinstance(command, InsertContact) and command.contact.id not in held and len(held) < K:
                bucket._add(command.contact, 0.0)
            elif isinstance(command, InsertContact):
                Bucket.insert(bucket, command.contact, 0.0)
            self._state.table.publish(0, bucket.view())
            weave.shown()


async def bucket(*, hasty: int = 0) -> tuple[str, ...]:
    """Offer three contacts to a bucket of two, let one die, stop at any moment: what was queued is worked off.

    `hasty` is how many writers look before they act; 0 is the real one.
    """
    inventory = Inventory("svc-model", LoopClock())
    queue: Channel[RouteCommand] = inventory.channel("route", RouteCommand, capacity=CAPACITY, full=Full.REFUSE)
    world = World(queue)
    state: Any = SimpleNamespace(
        options=SimpleNamespace(k=K), table=RoutingTable(0), monotonic=asyncio.get_running_loop().time
    )
    events: Any = SimpleNamespace(say=lambda _name, **_facts: None)
    made = HastyWriters if hasty else BucketWriters
    writers = made(state, [world], events, lambda _contact: None)  # type: ignore[list-item]
    writers._buckets[0] = world.bucket = ShownBucket(K)
    world.bucket.world = world
    weave.view(world.view)
    weave.always(lambda: world.bucket is not None and len(world.bucket) <= K, "at most k contacts")
    spec = ChildSpec(
        "bucket_writer", writers.run, instances=max(1, hasty), drain=Drain.FINISH, consumes=lambda _index: (queue,)
    )
    boss = Supervisor(inventory, [spec], SupervisorOptions(drain_deadline_s=3.0), rng=Middle())
    with weave.still():
        await boss.start()
    for name in NODES:
        weave.event(world.offer, name)
    weave.event(world.die, "n1")
    stop = asyncio.get_running_loop().create_future()
    weave.event(stop.set_result, None)
    await stop
    report = await boss.drain()
    assert report.clean, f"cut off: {report.aborted}"
    assert not queue._items, "what was queued is worked off"
    shown = tuple(contact.id for contact in state.table.views[0].contacts)
    assert shown == tuple(world.bucket._entries), "readers see what the writer has"
    return tuple(NAMES[node] for node in shown)
