"""What the agents of one node share: its identity, the table everybody reads, what is known of peers."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.diversity import group_of
from penstock.services.dht.core.peer_book import PeerBook
from penstock.services.dht.core.readiness import PeerReadiness
from penstock.services.dht.core.size import SizeEstimate
from penstock.services.dht.core.table import RoutingTable

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.dht.config import DhtOptions
    from penstock.services.dht.core.record import RecordSigner


class DhtPhase(enum.Enum):
    """Whether the node takes part."""

    BOOTSTRAPPING = "bootstrapping"
    READY = "ready"
    DRAINING = "draining"


class DhtState:
    """Owned by the service; each part has the one writer that its comment names."""

    def __init__(self, inventory: Inventory, options: DhtOptions) -> None:
        """Know nobody, not even oneself: the identity is read when the service starts."""
        self.options = options
        self.monotonic = inventory.clock.monotonic
        self.wall = inventory.clock.wall
        # Set once by the republisher, which owns the node's files, before anybody else starts.
        self.identity: RecordSigner | None = None
        # Each bucket's view is published by its own writer.
        self.table = RoutingTable(0)
        # Written by the peer pool, from the outcomes of requests.
        self.book = PeerBook(hedge_after_s=options.hedge_after_s)
        # Written by whoever completes a walk; one step, no await.
        self.size = SizeEstimate(options.k)
        # Written by the bootstrapper; draining by the peer listener.
        self.phase = DhtPhase.BOOTSTRAPPING
        self.readiness = PeerReadiness(ready=False, alone=False, reason="The node is starting.")
        # Set by the peer listener once it is bound.
        self.port = options.port

    @property
    def signer(self) -> RecordSigner:
        """Return the identity; asking before the start is a bug."""
        if self.identity is None:
            raise RuntimeError("the identity has not been read yet")
        return self.identity

    @property
    def own(self) -> int:
        """Return the node's own id."""
        return self.signer.id

    def adopt(self, signer: RecordSigner) -> None:
        """Become somebody."""
        self.identity = signer
        self.table.own = signer.id

    def contact_of(self, node_id: int, host: str, port: int) -> Contact:
        """Make a contact with its address groups."""
        return Contact(node_id, host, port, group_of(host, group_private=self.options.group_private))

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds, which records are stamped and judged with."""
        return int(self.wall() * 1000)
