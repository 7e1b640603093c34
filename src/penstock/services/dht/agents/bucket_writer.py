"""The one writer of a k-bucket: takes commands from its queue, changes the bucket, publishes a view. Never does I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.kernel.errors import Closed
from penstock.services.dht.core.bucket import Bucket, Inserted
from penstock.services.dht.core.ids import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.events import DhtEvents
    from penstock.services.dht.state import DhtState


@dataclass(frozen=True, slots=True)
class InsertContact:
    """A contact answered a query of ours at an address we dialled."""

    contact: Contact


@dataclass(frozen=True, slots=True)
class ContactSeen:
    """A contact answered again."""

    node_id: int


@dataclass(frozen=True, slots=True)
class EvictContact:
    """A contact does not answer any more."""

    node_id: int


RouteCommand = InsertContact | ContactSeen | EvictContact


class BucketWriters:
    """All 64: instance b owns bucket b. State outlives a crash of its writer."""

    def __init__(
        self, state: DhtState, routes: list[Channel[RouteCommand]], events: DhtEvents, doubt: Callable[[Contact], None]
    ) -> None:
        self._state = state
        self._routes = routes
        self._events = events
        self._doubt = doubt
        self._buckets = [Bucket(state.options.k) for _ in range(BUCKETS)]

    async def run(self, child: Child) -> None:
        """Work until the queue is closed and empty."""
        index = child.index
        queue, bucket = self._routes[index], self._buckets[index]
        while True:
            try:
                commands = await queue.recv_many(64)
            except Closed:
                return
            for command in commands:
                self._apply(bucket, command)
            self._state.table.publish(index, bucket.view())

    def _apply(self, bucket: Bucket, command: RouteCommand) -> None:
        now = self._state.monotonic()
        match command:
            case InsertContact(contact):
                outcome, doubted = bucket.insert(contact, now)
                if outcome is Inserted.ADDED:
                    self._events.say("contact.added", node_id=contact.id)
                if doubted is not None:
                    self._doubt(doubted)
            case ContactSeen(node_id):
                bucket.seen(node_id, now)
            case EvictContact(node_id):
                known = node_id in bucket
                bucket.evict(node_id)
                if known:
                    self._events.say("contact.evicted", node_id=node_id)
