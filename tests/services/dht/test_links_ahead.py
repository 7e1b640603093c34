"""Links that are kept and links that are opened before a lookup needs them: in every region, and none that would go."""

from __future__ import annotations

from random import Random

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import pause
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.dht.config import DhtOptions
from penstock.services.dht.core.bucket import BucketView
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.ids import ID_BITS, bucket_of
from penstock.services.dht.core.link_spread import LinkRank, LinkRegion, region_of, target_in_region
from penstock.services.dht.core.record import RecordSigner
from penstock.services.dht.peers.kept_links import KeptLinks
from penstock.services.dht.peers.link import Done, PeerLink
from penstock.services.dht.peers.links_ahead import LOOKED_INTO_A_TURN, LOOKED_INTO_AGAIN_S, TRIED_MAX, LinksAhead
from penstock.services.dht.protocol.envelope import Opcode
from penstock.services.dht.protocol.messages import AnswerCode, DhtAnswer
from penstock.services.dht.service import SERVICE, DhtService
from tests.services.dht.kit import swarm, until
from tests.services.dht.test_links import full_node

RNG = Random(5)


class World:
    """A node that does not run: whom it asks is written down, and what is answered is said by the test."""

    def __init__(self, places: int = 74) -> None:
        self.service = DhtService(Inventory(SERVICE, LoopClock()), DhtOptions(peer_conns=places))
        self.state = self.service.state
        self.state.adopt(RecordSigner(b"\x03" * 32))
        self.kept = KeptLinks(places, 20)
        self.asked: list[tuple[Contact, Opcode, Done, int]] = []
        self.ahead = LinksAhead(self.state, self.kept, self._ask)

    def _ask(self, contact: Contact, opcode: Opcode, payload: bytes, done: Done, namer: int = 0) -> None:
        self.asked.append((contact, opcode, done, namer))

    def somebody(self, region: LinkRegion) -> Contact:
        """Make a node of a region."""
        return Contact(target_in_region(self.state.own, region, RNG.getrandbits(ID_BITS)), "127.0.0.1", 2000)

    def link(self, contact: Contact) -> PeerLink:
        """Keep a link to a node."""
        link = PeerLink(self.service.pool, dialled=True)
        link.peer, link.contact = contact.id, contact
        link.region = region_of(self.state.own, contact.id)
        self.kept.put(link)
        return link

    def of_nodes(self, count: int) -> None:
        """Believe in a network of so many nodes."""
        self.state.size.know(count - 1)

    def regions_asked(self) -> list[LinkRegion]:
        """Say where the nodes are that were asked."""
        return [region_of(self.state.own, contact.id) for contact, *_ in self.asked]


def link_in_each(world: World, *but: LinkRegion) -> None:
    """Link to enough nodes in the regions of a network of 200, but not in some."""
    for bucket in range(3):
        for eighth in range(8):
            for _ in range(3 if LinkRegion(bucket, eighth) not in but else 0):
                world.link(world.somebody(LinkRegion(bucket, eighth)))


async def test_into_a_region_without_a_link_a_known_contact_is_dialled() -> None:
    world, bare = World(), LinkRegion(0, 5)
    world.of_nodes(200)
    link_in_each(world, bare)
    there = world.somebody(bare), world.somebody(bare), world.somebody(bare)
    world.state.table.publish(0, BucketView(there, (0.0, 0.0, 0.0)))
    world.ahead.cover(0.0)

    assert [(opcode, region) for (_, opcode, *_), region in zip(world.asked, world.regions_asked(), strict=True)] == [
        (Opcode.PING, bare)
    ] * 2, "two in each"


async def test_where_no_contact_is_known_the_nearest_linked_peer_is_asked_and_one_it_names_there_is_dialled() -> None:
    world, bare = World(), LinkRegion(1, 2)
    world.of_nodes(200)
    link_in_each(world, bare)
    world.ahead.cover(0.0)
    [(guide, opcode, done, _)] = world.asked
    assert opcode is Opcode.FIND_NODE
    assert region_of(world.state.own, guide.id).bucket == 1
    there, elsewhere = world.somebody(bare), world.somebody(LinkRegion(0, 0))
    done(DhtAnswer(AnswerCode.OK, [elsewhere, there]))

    assert [(contact, opcode, namer) for contact, opcode, _, namer in world.asked[1:]] == [
        (there, Opcode.PING, guide.id)
    ], "and its namer answers for it: dials a namer causes are limited"


async def test_no_region_is_looked_into_that_hardly_holds_two_nodes() -> None:
    world = World()
    world.of_nodes(200)
    world.link(world.somebody(LinkRegion(0, 0)))
    world.ahead.cover(0.0)
    buckets = {region.bucket for region in world.ahead._looked_at}

    assert buckets == {0, 1, 2}, "eighths of 12, 6 and 3 nodes; the next have one and a half"


async def test_a_turn_looks_into_few_regions_and_into_none_again_at_once() -> None:
    world = World()
    world.of_nodes(200)
    world.link(world.somebody(LinkRegion(3, 0)))
    now, turns = 0.0, list[int]()
    for _ in range(14):
        world.asked.clear()
        world.ahead.open(now)
        turns.append(len(world.asked))
        now += 1.0
    assert turns == [LOOKED_INTO_A_TURN] * 12 + [0, 0], "24 regions"

    world.ahead.open(LOOKED_INTO_AGAIN_S - 0.5)
    assert not world.asked
    world.ahead.open(LOOKED_INTO_AGAIN_S)
    assert len(world.asked) == LOOKED_INTO_A_TURN


async def test_a_link_to_a_near_node_is_not_opened_ahead_where_its_bucket_has_its_share() -> None:
    world, near = World(), LinkRegion(5, 0)
    world.of_nodes(200)
    link_in_each(world)
    contact = world.somebody(near)
    world.state.table.publish(5, BucketView((contact,), (0.0,), by_id={contact.id: contact}))
    assert list(world.ahead._missed())[:1] == [contact]

    for _ in range(12):
        world.link(world.somebody(near))
    assert contact not in list(world.ahead._missed())


async def test_peers_that_closed_their_links_are_remembered_up_to_a_bound() -> None:
    world = World()
    for peer in range(1, TRIED_MAX + 10):
        world.ahead.closed_by_peer(peer)

    assert len(world.ahead._tried_at) == TRIED_MAX
    assert 1 not in world.ahead._tried_at


@pytest.mark.real_loop
async def test_a_link_that_its_peer_closed_is_not_opened_ahead_and_one_that_broke_is() -> None:
    async with swarm(2) as nodes:
        pool, peer = nodes[1].service.pool, nodes[0].own
        await until(lambda: peer in pool.links and nodes[1].own in nodes[0].service.pool.links, "the link")
        await until(lambda: not pool._dials and not pool.links[peer].pending, "a quiet moment")
        pool.ahead._tried_at.clear()
        pool.links[peer].abort()
        await until(lambda: peer not in pool.links, "the break")
        assert peer not in pool.ahead._tried_at

        await pool.dial(*nodes[0].address)
        await until(lambda: nodes[1].own in nodes[0].service.pool.links, "the other end")
        nodes[0].service.pool.links[nodes[1].own].close()
        await until(lambda: peer in pool.ahead._tried_at, "the note")
        assert peer not in pool.links


async def test_of_several_links_the_one_goes_whose_region_has_most_and_never_the_newest_or_one_that_is_waited_on() -> (
    None
):
    world = World(places=4)
    alone = world.link(world.somebody(LinkRegion(0, 1)))
    crowd = [world.link(world.somebody(LinkRegion(0, 2))) for _ in range(3)]

    def unused(link: PeerLink) -> LinkRank:
        return LinkRank(stranger=False, quiet=False, unused_s=float(crowd.index(link)) if link in crowd else 0.0)

    def superfluous(newest: PeerLink) -> PeerLink | None:
        return world.kept.superfluous(newest, set(), unused)

    assert superfluous(alone) is crowd[2]
    assert superfluous(crowd[2]) is crowd[1]
    assert world.kept.superfluous(crowd[2], {alone.peer}, unused) is alone
    crowd[1]._pending[1] = None  # type: ignore[assignment]  # that there is one is all that counts
    assert superfluous(crowd[2]) is crowd[0]


async def test_linked_peers_that_are_no_contacts_are_asked_too_also_those_we_dialled() -> None:
    world = World()
    pool, contact = world.service.pool, world.somebody(LinkRegion(0, 3))
    link = world.link(contact)
    pool._kept.put(link)
    assert pool.callers(contact.id, 5) == [contact]

    world.state.table.publish(
        bucket_of(world.state.own, contact.id), BucketView((contact,), (0.0,), by_id={contact.id: contact})
    )
    assert pool.callers(contact.id, 5) == [], "contacts are candidates already"


async def test_a_link_that_replaces_another_to_the_same_peer_counts_once_and_outlives_it() -> None:
    world, region = World(), LinkRegion(0, 3)
    contact = world.somebody(region)
    first, second = world.link(contact), world.link(contact)
    assert world.kept.standing.neighbours(region) == 1
    assert not world.kept.drop(first)
    assert world.kept.by_peer == {contact.id: second}

    assert world.kept.drop(second)
    assert (world.kept.by_peer, world.kept.standing.most_crowded()) == ({}, [])


async def test_whoever_does_not_answer_is_neither_dialled_ahead_nor_asked_who_lives_in_a_region() -> None:
    world, bare = World(), LinkRegion(0, 5)
    world.of_nodes(200)
    link_in_each(world, bare)
    there = world.somebody(bare)
    world.state.table.publish(0, BucketView((there,), (0.0,)))
    world.state.book.failed(there.id, 0.0)
    world.ahead.cover(0.0)
    [(guide, opcode, *_)] = world.asked
    assert opcode is Opcode.FIND_NODE

    world.asked.clear()
    for peer in world.kept.by_peer:
        if bucket_of(world.state.own, peer) == 0:
            world.state.book.failed(peer, 0.0)
    world.ahead.cover(LOOKED_INTO_AGAIN_S)
    assert guide.id not in {contact.id for contact, *_ in world.asked}
    assert not any(region.bucket == 0 for region in world.regions_asked())


async def test_a_node_that_joins_connects_into_every_region_at_once() -> None:
    inventory = Inventory(SERVICE, LoopClock())
    # Addresses that nobody dials, and a seed that is not there: where it wanted to connect is all that counts.
    service = full_node(inventory, "224.0.0.1", seeds=(("127.0.0.1", 2000),))

    async def nobody(*_address: object) -> PeerLink:
        raise ConnectionRefusedError

    service.pool.dial = nobody  # type: ignore[method-assign]  # a virtual loop has no sockets
    only = [child for child in service.children() if child.name == "bootstrapper"]
    supervisor = Supervisor(inventory, only, service.supervision())
    await supervisor.start()
    await pause("test", 300.0)

    regions = set(service.pool.ahead._looked_at)
    assert regions == {LinkRegion(bucket, eighth) for bucket in range(3) for eighth in range(8)}
    await supervisor.drain()
    await service.close()
