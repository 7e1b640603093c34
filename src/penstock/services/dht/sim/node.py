"""One simulated node: the service's table, peer memory and lookups, without kernel, channels, codec or signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.services.dht.core.bucket import Bucket, Inserted
from penstock.services.dht.core.ids import bucket_of
from penstock.services.dht.core.peer_book import PeerBook, SlowPoint
from penstock.services.dht.core.size import SizeEstimate
from penstock.services.dht.core.table import RoutingTable

if TYPE_CHECKING:
    from penstock.services.dht.core.bucket import BucketView
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.sim.network import SimNetwork


class SimRecord(NamedTuple):
    """A record: `forged` stands for a signature that does not hold."""

    key: int
    publisher: int
    seq: int
    addrs: tuple[str, ...] = ("sim",)
    forged: bool = False


class SimNode:
    """A node's state; its methods happen in an instant of virtual time."""

    __slots__ = (
        "alive",
        "book",
        "buckets",
        "contact",
        "dialled",
        "doubted",
        "hostile",
        "natted",
        "network",
        "place",
        "records",
        "side",
        "size",
        "table",
    )

    def __init__(self, network: SimNetwork, contact: Contact, place: tuple[float, float]) -> None:
        """Start with an empty table."""
        self.network = network
        self.contact = contact
        self.place = place
        self.alive = True
        self.natted = False
        self.hostile = False
        self.side = 0
        self.table = RoutingTable(contact.id)
        # Made from the table's view at the first change: most buckets of most nodes never change.
        self.buckets: dict[int, Bucket] = {}
        self.book = PeerBook()
        self.size = SizeEstimate(network.options.k)
        self.records: dict[int, SimRecord] = {}
        self.dialled: set[int] = set()
        self.doubted: set[int] = set()

    def slow_point(self, peer: int) -> SlowPoint:
        """Say when a probe is slow; connecting takes longer."""
        return self.book.slow_point(peer, connecting=peer not in self.dialled)

    @property
    def near_enough(self) -> int:
        """Look at nobody but the nearest."""
        return 1

    def connected(self, peer: int) -> bool:
        """Prefer nobody: every probe of the simulation pays for its distance, not for its connection."""
        return False

    # --- answering ------------------------------------------------------------------------------------------

    def answer(self, target: int, asker: SimNode) -> tuple[list[Contact], list[SimRecord]]:
        """Answer a FIND from the table, and remember the asker as a candidate."""
        view = self.table.views[bucket_of(self.contact.id, asker.contact.id)]
        self._consider(asker, view)
        if self.hostile:
            return self._lie(target, asker)
        contacts = self.table.closest(target, self.network.options.k, self.book.failing)
        if asker.contact.id in view.by_id:
            contacts = _without(asker, contacts)
        record = self.records.get(target)
        return contacts, [] if record is None else [record]

    def _lie(self, target: int, asker: SimNode) -> tuple[list[Contact], list[SimRecord]]:
        """Withhold values, name accomplices as the nearest, and hand out a forged record."""
        forged = SimRecord(target, self.contact.id, 1 << 60, forged=True)
        return _without(asker, self.network.hostile_near(target)), [forged]

    # --- the table: what the bucket writers do ------------------------------------------------------------------

    def _bucket(self, index: int) -> Bucket:
        bucket = self.buckets.get(index)
        if bucket is None:
            bucket = self.buckets[index] = Bucket.restore(self.table.views[index], self.network.options.k)
        return bucket

    def insert(self, contact: Contact) -> None:
        """Take in a contact that answered at its address; a full bucket has its oldest contact pinged."""
        index = bucket_of(self.contact.id, contact.id)
        bucket = self._bucket(index)
        outcome, doubted = bucket.insert(contact, self.network.now)
        if outcome is Inserted.ADDED or outcome is Inserted.REFRESHED:
            self.table.publish(index, bucket.view())
        if doubted is not None:
            self.doubt(doubted)

    def doubt(self, contact: Contact) -> None:
        """Ping a contact; one that does not answer is removed."""
        if contact.id in self.doubted:
            return
        self.doubted.add(contact.id)
        answers = self.network.reachable(self, contact)
        self.network.messages += 1
        wait_s = 0.1 if answers else self.network.options.rpc_timeout_s
        self.network.at(self.network.now + wait_s, self._pinged, contact, answers)

    def _pinged(self, contact: Contact, answered: bool) -> None:  # noqa: FBT001 - an event's argument
        self.doubted.discard(contact.id)
        if not self.alive:
            return
        index = bucket_of(self.contact.id, contact.id)
        bucket = self._bucket(index)
        if answered:
            self.book.failing.discard(contact.id)
            bucket.seen(contact.id, self.network.now)
        else:
            self.book.failed(contact.id, self.network.now)
            bucket.evict(contact.id)
        self.table.publish(index, bucket.view())

    def _consider(self, asker: SimNode, view: BucketView) -> None:
        """Ping a node that asked us, if its bucket has room: only at an address we dialled is it proved."""
        if asker.natted or asker.contact.id in self.doubted:
            return
        if len(view.contacts) >= self.network.options.k or asker.contact.id in view.by_id:
            return
        self.doubted.add(asker.contact.id)
        self.network.messages += 1
        self.network.at(self.network.now + 0.2, self._proved, asker)

    def _proved(self, asker: SimNode) -> None:
        self.doubted.discard(asker.contact.id)
        if self.alive and asker.alive:
            self.insert(asker.contact)


def _without(asker: SimNode, contacts: list[Contact]) -> list[Contact]:
    """Leave the asker out: nobody is told about himself."""
    return [contact for contact in contacts if contact.id != asker.contact.id]
