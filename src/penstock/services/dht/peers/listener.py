"""Accepts peers: caps and rates first, then the HELLO; nothing is verified for whoever comes too often."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import no_deadline, timeout
from penstock.kernel.errors import Busy, PenstockError, Timeout
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.log import Log
from penstock.net.server.bind import CannotBind
from penstock.services.dht.core.diversity import group_of
from penstock.services.dht.peers.proving import HELLO_S
from penstock.services.dht.state import DhtPhase

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.scope import Scope
    from penstock.services.dht.peers.link import PeerLink
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.peers.proving import Prover
    from penstock.services.dht.state import DhtState

UNPROVEN_MAX: Final = 128
HELLOS_A_SECOND: Final = 10.0
ADDRESSES_MAX: Final = 4096
PER_ADDRESS_IN: Final = 64
BIND_S: Final = 5.0


class PeerListener:
    """The node's door for peers."""

    def __init__(self, inventory: Inventory, state: DhtState, pool: PeerPool, prover: Prover) -> None:
        self._state = state
        self._pool = pool
        self._prover = prover
        self._rates: dict[str, TokenBucket] = {}
        self._log = Log(inventory.service)
        self._scope: Scope | None = None
        self._server: asyncio.Server | None = None
        options = state.options
        inventory.limit(
            "peer_max_conns", options.peer_max_conns, "closed at once", lambda: {"in_use": pool.connections}
        )
        inventory.limit(
            "unproven",
            UNPROVEN_MAX,
            "closed at once",
            lambda: {"in_use": 0 if self._scope is None else len(self._scope)},
        )
        self._refused = inventory.metrics.counter("dht_peers_refused_total", "Peer connections that were refused.")

    async def run(self, child: Child) -> None:
        """Listen until the end; while draining, whoever is connected hears NotReady."""
        self._scope = child.scope("hello", UNPROVEN_MAX)
        options = self._state.options
        loop = asyncio.get_running_loop()
        try:
            # Links live in the context they were accepted in: it must not be that of this deadline.
            async with timeout("bind", BIND_S):
                with no_deadline():
                    self._server = await loop.create_server(self._accept, options.host, options.port, backlog=1024)
        except OSError as exc:
            raise CannotBind(f"cannot listen on {options.host}:{options.port}: {exc.strerror or exc}") from exc
        self._state.port = self._server.sockets[0].getsockname()[1]
        child.announce()
        try:
            await child.shutdown.wait()
            self._state.phase = DhtPhase.DRAINING
            self.stop_accepting()
            child.quiet()
            await child.shutdown.stopped()
        finally:
            self.stop_accepting()

    def stop_accepting(self) -> None:
        """Close the listening socket."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self) -> PeerLink:
        link = self._pool.make_link(dialled=False)
        made = link.connection_made

        def admit(transport: asyncio.BaseTransport) -> None:
            # Happens once. Kept, it would hold the link in a cycle that only the garbage collector undoes.
            del link.connection_made
            made(transport)
            self._admit(link)

        link.connection_made = admit  # type: ignore[method-assign]  # the listener's part of a link's beginning
        return link

    def _admit(self, link: PeerLink) -> None:
        """Refuse whoever is one too many; prove the others."""
        if self._scope is None or self._pool.silent:
            return
        group = group_of(link.host, group_private=self._state.options.group_private)
        link.subnet = None if group is None else group.subnet
        if self._pool.connections > self._state.options.peer_max_conns or (
            group is not None and not self._welcome(link)
        ):
            self._refuse(link)
            return
        try:
            self._scope.start(self._greet(link))
        except Busy:
            self._refuse(link)

    def _refuse(self, link: PeerLink) -> None:
        self._refused.value += 1
        link.abort()

    def _welcome(self, link: PeerLink) -> bool:
        """Judge a global address by how many links it has and how often it comes."""
        if sum(other.host == link.host for other in self._pool.links.values()) >= PER_ADDRESS_IN:
            return False
        name, now = _network(link.host), self._state.monotonic()
        bucket = self._rates.pop(name, None)
        if bucket is None:
            bucket = TokenBucket("hello_rate", rate=HELLOS_A_SECOND, depth=HELLOS_A_SECOND, now=now)
            if len(self._rates) >= ADDRESSES_MAX:
                del self._rates[next(iter(self._rates))]
        self._rates[name] = bucket
        return bucket.try_take(now)

    async def _greet(self, link: PeerLink) -> None:
        try:
            async with timeout("hello", HELLO_S):
                await self._prover.greet(link)
        except (PenstockError, Timeout) as error:
            self._pool.malformed("hello")
            self._log.debug("peer.unproven", why=type(error).__name__)
            link.abort()
            return
        self._pool.adopt(link)


def _network(host: str) -> str:
    """Name what a rate counts: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else f"{int(address) >> 64:x}"
