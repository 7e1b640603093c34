"""Everybody at the start: ids, addresses, places, and tables filled by an oracle that knows all nodes."""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import TYPE_CHECKING

from penstock.services.dht.core.bucket import Bucket
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.diversity import AddressGroup
from penstock.services.dht.core.ids import BUCKETS, ID_BITS
from penstock.services.dht.sim.node import SimNode

if TYPE_CHECKING:
    from penstock.services.dht.sim.network import SimNetwork

GROUPS = 400
# Nodes beyond a bucket's size that are offered to it, because diversity refuses some.
_OFFERED = 2


def make_node(network: SimNetwork, rng: Random) -> SimNode:
    """Draw a node: a random id, address and place."""
    options = network.options
    group = 0 if rng.random() < options.one_group else rng.randrange(1, GROUPS)
    subnet = rng.randrange(256)
    contact = Contact(rng.getrandbits(ID_BITS), "sim", 1, AddressGroup(f"{group}", f"{group}.{subnet}"))
    node = SimNode(network, contact, (rng.random(), rng.random()))
    node.natted = rng.random() < options.natted
    node.hostile = rng.random() < options.hostile
    node.side = int(rng.random() < options.partition)
    return node


def populate(network: SimNetwork, rng: Random) -> None:
    """Make all nodes and fill their tables."""
    nodes = [make_node(network, rng) for _ in range(network.options.nodes)]
    network.nodes = {node.contact.id: node for node in nodes}
    network.hostile = [node.contact for node in nodes if node.hostile]
    # Who cannot be dialled is in nobody's table.
    known = sorted((node.contact for node in nodes if not node.natted), key=lambda contact: contact.id)
    oracle = TableOracle(known, network.options.k)
    for node in nodes:
        oracle.fill(node, rng)


class TableOracle:
    """Fills a table from the sorted list of everybody: the nodes of one bucket stand side by side in it."""

    def __init__(self, known: list[Contact], k: int) -> None:
        """Keep the sorted ids beside the contacts."""
        self._known = known
        self._ids = [contact.id for contact in known]
        self._k = k

    def fill(self, node: SimNode, rng: Random) -> None:
        """Give every bucket up to k random nodes of its part of the key space."""
        own = node.contact.id
        for index in range(BUCKETS):
            low, high = self._range(own, index)
            if high - low > 0:
                self._fill_bucket(node, index, self._known[low:high], rng)
            if high - low < 2:
                inner_low, inner_high = self._within(own, index + 1)
                if inner_high - inner_low <= 1:
                    return

    def _range(self, own: int, index: int) -> tuple[int, int]:
        """Return where those stand that share exactly `index` bits with `own`: under its sibling at that depth."""
        width = ID_BITS - 1 - index
        start = ((own >> width) ^ 1) << width
        return bisect_left(self._ids, start), bisect_left(self._ids, start + (1 << width))

    def _within(self, own: int, bits: int) -> tuple[int, int]:
        width = ID_BITS - bits
        start = own >> width << width
        return bisect_left(self._ids, start), bisect_left(self._ids, start + (1 << width))

    def _fill_bucket(self, node: SimNode, index: int, there: list[Contact], rng: Random) -> None:
        bucket = Bucket(self._k)
        for contact in rng.sample(there, min(len(there), _OFFERED * self._k)):
            if len(bucket) >= self._k:
                break
            bucket.insert(contact, 0.0)
        node.table.publish(index, bucket.view())
