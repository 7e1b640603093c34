"""Places for connections: a cap, a cap per address, and places kept for the operator."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from penstock.kernel.errors import Busy
from penstock.net.server.admission import Refusal
from penstock.net.server.wheel import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.net.message import Peer

IDLE_EVICTABLE_S: Final = 1.0
HEALTH_PLACES: Final = 16
"""Places beyond the cap for connections that ask only how the service is: a full listener can still be watched."""
HEALTH_PLACES_EACH: Final = 4
"""How many of them one address may hold."""
HEALTH_HEAD_S: Final = 1.0
"""How long such a connection has for its request, from the accept on."""
# Refused connections linger so that the client reads its 429; beyond so many of them they are cut at once.
LINGERING_MAX: Final = 128


class CappedConnection(Protocol):
    """A connection, as far as its place is concerned."""

    peer: Peer
    idle_since: float

    def close_if_idle(self) -> None:
        """End it if nothing is owed."""
        ...

    def hear_drain(self) -> None:
        """End it if nothing is owed; otherwise as soon as the drain allows."""
        ...

    def abort(self) -> None:
        """End it now."""
        ...


class ConnectionCaps:
    """Counts the connections. At the cap the one idle longest is closed; if none is idle, the new one is refused."""

    def __init__(
        self, *, places: int, per_address: int, reserved: int, uids: frozenset[int] | None, table: str = "http"
    ) -> None:
        """Bound the connections, in all and for each address (0: not); `reserved` places are for Unix sockets only.

        `table` is where the settings of the listener are.
        """
        self._table = table
        self._places = places
        self._per_address = per_address
        self._reserved = min(reserved, places - 1)
        self._uids = uids
        self._by_address: dict[str, int] = {}
        self._none_idle_before = 0.0
        self.held: set[CappedConnection] = set()
        self.refused: set[CappedConnection] = set()
        # Beyond the cap, for health pages only.
        self.for_health: set[CappedConnection] = set()
        self._make_refusals()

    def resize(self, places: int, per_address: int) -> None:
        """Change the bounds; whoever is above a lowered one stays until it leaves."""
        self._places = places
        self._per_address = per_address
        self._reserved = min(self._reserved, places - 1)
        self._make_refusals()

    def _make_refusals(self) -> None:
        said = f"The listener has no place for another connection: it holds {self._places} at most."
        self.full = self._refusal(said, "max_conns", self._places)
        said = f"This address holds too many connections: {self._per_address} is the most."
        self.address_full = self._refusal(said, "max_conns_per_ip", self._per_address)

    def _refusal(self, said: str, limit: str, most: int) -> Refusal:
        hint = "Close connections that are not needed, or use one for several requests, and ask again."
        return Refusal(Busy(said, limit=limit, limit_value=most, setting=f"{self._table}.{limit}", hint=hint))

    def enter(self, connection: CappedConnection, now: float) -> Refusal | None:
        """Take a place, or return the refusal."""
        refusal = self._judge(connection.peer, now)
        if refusal is None:
            self.held.add(connection)
            self._count(connection.peer, 1)
        else:
            self.refused.add(connection)
        return refusal

    def enter_for_health(self, connection: CappedConnection, refusal: Refusal) -> bool:
        """Give a connection that the full listener refused a place to ask how the service is, if one is free."""
        if refusal is not self.full or len(self.for_health) >= HEALTH_PLACES:
            return False
        block = peer_block(connection.peer)
        if sum(peer_block(other.peer) == block for other in self.for_health) >= HEALTH_PLACES_EACH:
            return False
        self.refused.discard(connection)
        self.for_health.add(connection)
        return True

    def answered_health(self, connection: CappedConnection) -> None:
        """Free the place of a connection that has its answer and only lingers."""
        if connection in self.for_health:
            self.for_health.discard(connection)
            self.refused.add(connection)

    @property
    def all(self) -> tuple[CappedConnection, ...]:
        """Return every connection, with a place or without."""
        return (*self.held, *self.for_health, *self.refused)

    def leave(self, connection: CappedConnection) -> None:
        """Give the place back."""
        if connection in self.held:
            self.held.discard(connection)
            self._count(connection.peer, -1)
        self.refused.discard(connection)
        self.for_health.discard(connection)

    def admits_uid(self, peer: Peer) -> bool:
        """Tell whether a Unix-socket peer's user may be here at all."""
        return peer.uid is None or self._uids is None or peer.uid in self._uids

    @property
    def crowded(self) -> bool:
        """Tell whether so many refused connections linger that further ones are cut without an answer."""
        return len(self.refused) > LINGERING_MAX

    def _judge(self, peer: Peer, now: float) -> Refusal | None:
        # A cap for each address that is off, or no lower than the cap for all, can refuse nobody.
        capped = peer.uid is None and 0 < self._per_address < self._places
        if capped and self._by_address.get(address_block(peer.host), 0) >= self._per_address:
            return self.address_full
        places = self._places if peer.uid is not None else self._places - self._reserved
        if len(self.held) < places or self._evict(now):
            return None
        return self.full

    def _evict(self, now: float) -> bool:
        """Close the connection idle longest, if that is at least 1 s; after a search in vain wait before the next."""
        if now < self._none_idle_before:
            return False
        oldest = min(self.held, key=lambda connection: connection.idle_since, default=None)
        if oldest is None or oldest.idle_since > now - IDLE_EVICTABLE_S:
            since = NEVER if oldest is None else oldest.idle_since
            self._none_idle_before = min(since, now) + IDLE_EVICTABLE_S
            return False
        self.leave(oldest)
        oldest.close_if_idle()
        return True

    def _count(self, peer: Peer, change: int) -> None:
        if peer.uid is not None:
            return
        block = address_block(peer.host)
        count = self._by_address.get(block, 0) + change
        if count:
            self._by_address[block] = count
        else:
            self._by_address.pop(block, None)


def fit_caps(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """Lower the listeners' caps in proportion until all of them fit; unchanged when they do already."""
    room, total = max(len(wanted), room), sum(wanted.values())
    if total <= room:
        return dict(wanted)
    return {name: max(1, places * room // total) for name, places in wanted.items()}


def peer_block(peer: Peer) -> str:
    """Return whose connections are counted together: an address, or a user on a Unix socket."""
    return f"uid:{peer.uid}" if peer.uid is not None else address_block(peer.host)


@lru_cache(maxsize=4096)
def address_block(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or an IPv6 /64."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
