"""The way to the bucket writers: a command goes to the queue of its bucket, or is dropped and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.channel import Full
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import PenstockError, Timeout
from penstock.services.dht.agents.bucket_writer import ContactSeen, EvictContact, InsertContact, RouteCommand
from penstock.services.dht.core.ids import BUCKETS, bucket_of

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.state import DhtState

ROUTE_S: Final = 0.1


class RouteQueues:
    """`route[0]` to `route[63]`."""

    def __init__(self, inventory: Inventory, state: DhtState) -> None:
        self._state = state
        self.queues: list[Channel[RouteCommand]] = inventory.channels(
            "route", RouteCommand, count=BUCKETS, capacity=state.options.route_capacity, full=Full.WAIT, wait_s=ROUTE_S,
            producers="lookup_worker, republisher, pinger", consumers="bucket_writer",
        )  # fmt: skip
        metrics = inventory.metrics
        self._dropped = metrics.counter("route_dropped_total", "Routing changes that found their queue full.")
        self._late = metrics.counter("io_timeouts_total", "Operations that took too long.", op="route")

    def _queue(self, node_id: int) -> Channel[RouteCommand]:
        return self.queues[bucket_of(self._state.own, node_id)]

    async def insert(self, contact: Contact) -> None:
        """Hand over a proven contact, waiting for room at most a tenth of a second."""
        if contact.id == self._state.own:
            return
        try:
            async with timeout("route", 2 * ROUTE_S):
                await self._queue(contact.id).send(InsertContact(contact))
        except Timeout:
            self._late.value += 1
            self._dropped.value += 1
        except PenstockError:
            self._dropped.value += 1

    def try_insert(self, contact: Contact) -> None:
        """Do the same from a callback, which cannot wait."""
        if contact.id != self._state.own:
            self._try(contact.id, InsertContact(contact))

    def try_seen(self, node_id: int) -> None:
        """Say that a contact answered."""
        self._try(node_id, ContactSeen(node_id))

    def try_evict(self, node_id: int) -> None:
        """Say that a contact is gone."""
        self._try(node_id, EvictContact(node_id))

    def _try(self, node_id: int, command: RouteCommand) -> None:
        try:
            self._queue(node_id).try_send(command)
        except PenstockError:
            self._dropped.value += 1
