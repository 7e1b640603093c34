"""Asks doubted contacts whether they are there; those that are not are evicted. Dials newcomers back."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.channel import Full
from penstock.kernel.errors import Closed, PenstockError
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.ids import bucket_of
from penstock.services.dht.protocol.envelope import Opcode
from penstock.services.dht.protocol.messages import EMPTY, DhtAnswer

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.scope import Scope
    from penstock.services.dht.agents.routes import RouteQueues
    from penstock.services.dht.peers.link import PeerLink, PeerReply
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.state import DhtState

AT_A_TIME: Final = 64


class Pinger:
    """Takes contacts from `ping`; what does not fit is dropped and counted, and will be doubted again."""

    def __init__(self, inventory: Inventory, state: DhtState, pool: PeerPool, routes: RouteQueues) -> None:
        self.queue: Channel[Contact] = inventory.channel(
            "ping", Contact, capacity=state.options.ping_capacity, full=Full.REFUSE,
            producers="bucket_writer, peer_pool, peer_listener", consumers="pinger",
        )  # fmt: skip
        self._state = state
        self._pool = pool
        self._routes = routes
        self._under_way: set[int] = set()
        self._room = asyncio.Event()
        self._scope: Scope | None = None

    def doubt(self, contact: Contact) -> None:
        """Have a contact pinged, unless that is under way; callable from any callback."""
        if contact.id in self._under_way or contact.id == self._state.own:
            return
        try:
            self.queue.try_send(contact)
        except PenstockError:
            return
        self._under_way.add(contact.id)

    def doubt_id(self, node_id: int) -> None:
        """Doubt a node that a peer says is down: only if it is a contact, and only by asking it ourselves."""
        view = self._state.table.views[bucket_of(self._state.own, node_id)]
        for contact in view.contacts:
            if contact.id == node_id:
                self.doubt(contact)

    def meet(self, link: PeerLink) -> None:
        """Dial a newcomer back where it says it listens, if its bucket has room: only then can it become a contact."""
        bucket = bucket_of(self._state.own, link.peer)
        view = self._state.table.views[bucket]
        known = any(contact.id == link.peer for contact in view.contacts)
        if link.listen and not known and len(view.contacts) < self._state.options.k:
            self.doubt(link.listen[0])

    async def run(self, child: Child) -> None:
        """Ping until the queue is closed and empty."""
        self._scope = child.scope("ping", AT_A_TIME)
        self._under_way.clear()
        while True:
            try:
                contact = await self.queue.recv()
            except Closed:
                return
            while len(self._scope) >= AT_A_TIME:
                self._room.clear()
                await self._room.wait()
            self._scope.start(self._ping(contact))

    async def _ping(self, contact: Contact) -> None:
        try:
            link = self._pool.links.get(contact.id)
            if link is not None and link.contact != contact and not self._is_known(contact):
                # It is connected, but came to us: dial the address to prove it.
                await self._prove(contact)
            else:
                await self._ask(contact)
        finally:
            self._under_way.discard(contact.id)
            self._room.set()

    def _is_known(self, contact: Contact) -> bool:
        """Tell whether it was proved at this address before: then any connection to it shows that it is alive."""
        return self._state.table.views[bucket_of(self._state.own, contact.id)].by_id.get(contact.id) == contact

    async def _prove(self, contact: Contact) -> None:
        try:
            await self._pool.dial(contact.host, contact.port, contact.id)
        except (OSError, PenstockError):
            return
        self._routes.try_insert(contact)

    async def _ask(self, contact: Contact) -> None:
        reply: asyncio.Future[PeerReply] = asyncio.get_running_loop().create_future()
        began = self._state.monotonic()
        self._pool.ask(contact, Opcode.PING, EMPTY, partial(_set, reply))
        answered = isinstance(await reply, DhtAnswer)
        if answered:
            self._routes.try_insert(contact)
        elif self._state.book.answered_at >= began - self._state.options.rpc_timeout_s:
            # Somebody else answered lately, so the network is there and this contact is not.
            self._routes.try_evict(contact.id)


def _set(reply: asyncio.Future[PeerReply], value: PeerReply) -> None:
    if not reply.done():
        reply.set_result(value)
