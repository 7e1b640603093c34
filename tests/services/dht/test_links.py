"""Which peers count as connected, whom finds ask over connections of theirs, and which links are opened ahead."""

from __future__ import annotations

from random import Random

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import pause
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.dht.config import DhtOptions
from penstock.services.dht.core.bucket import Bucket, BucketView
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.ids import BUCKETS, ID_BITS, bucket_of
from penstock.services.dht.core.record import RecordSigner
from penstock.services.dht.protocol.messages import EMPTY, read_answer
from penstock.services.dht.service import SERVICE, DhtService
from tests.services.dht.kit import Opcode, RunningNode, SmallSwarm, swarm, until

LONG_S = 600.0


async def linked(nodes: SmallSwarm) -> tuple[RunningNode, int]:
    """Return the second node, quiet and connected to the first, and the first one's id."""
    node, peer = nodes[1], nodes[0].own
    links = node.service.pool.links
    await until(lambda: peer in links and len(node.service.state.table) == 1, "the link")
    await until(lambda: not links[peer].pending, "a quiet moment")
    return node, peer


@pytest.mark.real_loop
async def test_a_link_that_owes_an_answer_for_longer_than_usual_counts_as_not_connected_for_every_lookup() -> None:
    async with swarm(2) as nodes:
        node, peer = await linked(nodes)
        pool, book = node.service.pool, node.service.state.book
        assert pool.connected(peer)
        nodes[0].service.pool.fall_silent(silent=True)
        pool.links[peer].request(Opcode.PING, EMPTY, lambda _reply: None, LONG_S)
        await until(lambda: not pool.connected(peer), "the suspicion")

        assert peer not in book.failing, "long before its time is over"
        assert pool.links[peer].is_open


@pytest.mark.real_loop
async def test_a_peer_that_failed_counts_as_not_connected_until_it_answers_and_is_no_caller_to_ask() -> None:
    async with swarm(2) as nodes:
        node, peer = await linked(nodes)
        pool, state = node.service.pool, node.service.state
        pool.links[peer].listen = [state.contact_of(peer, *nodes[0].address)]
        state.table.publish(bucket_of(node.own, peer), BucketView())
        assert [each.id for each in pool.callers(0, 5)] == [peer]

        state.book.failed(peer, state.monotonic())
        assert not pool.connected(peer)
        assert pool.callers(0, 5) == []
        state.book.answered(peer, 0.001, state.monotonic())
        assert pool.connected(peer)


@pytest.mark.real_loop
async def test_a_link_is_closed_after_a_minute_of_silence_and_not_before() -> None:
    async with swarm(2) as nodes:
        node, peer = await linked(nodes)
        pool, link = node.service.pool, node.service.pool.links[peer]
        pool._look_after(link.heard_at + 30.0)
        assert link.is_open

        pool._look_after(link.heard_at + 61.0)
        assert not link.is_open


def full_node(inventory: Inventory, host: str = "127.0.0.1", seeds: tuple[tuple[str, int], ...] = ()) -> DhtService:
    """Make a node with a table as in a network of thousands, and without a link."""
    service, rng = DhtService(inventory, DhtOptions(seeds=seeds)), Random(1)
    service.state.adopt(RecordSigner(b"\x03" * 32))
    buckets = [Bucket(service.state.options.k) for _ in range(BUCKETS)]
    for _ in range(2000):
        contact = Contact(rng.getrandbits(ID_BITS), host, rng.randrange(1024, 65536))
        buckets[bucket_of(service.state.own, contact.id)].insert(contact, 0.0)
    for index, bucket in enumerate(buckets):
        service.state.table.publish(index, bucket.view())
    return service


async def test_links_are_opened_ahead_to_the_nearest_and_to_half_of_each_buckets_share() -> None:
    service = full_node(Inventory(SERVICE))
    state, missed = service.state, list(service.pool.ahead._missed())
    k = state.options.k

    assert missed[:k] == list(state.table.closest(state.own, k))
    by_bucket = [sum(bucket_of(state.own, each.id) == bucket for each in missed[k:]) for bucket in range(6)]
    assert all(0 < count <= k for count in by_bucket), by_bucket
    assert by_bucket[0] == max(by_bucket)
    await service.close()


async def test_the_pool_opens_links_ahead_a_few_in_a_turn() -> None:
    inventory = Inventory(SERVICE, LoopClock())
    # Addresses that nobody dials: whom it wanted to connect to is all that counts here.
    service = full_node(inventory, "224.0.0.1")
    only = [child for child in service.children() if child.name == "peer_pool"]
    supervisor = Supervisor(inventory, only, service.supervision())
    await supervisor.start()
    await pause("test", 6.5)

    assert len(service.pool.ahead._tried_at) == 2
    await pause("test", 60.0)
    assert len(service.pool.ahead._tried_at) >= 16
    await supervisor.drain()
    await service.close()


async def test_a_peer_that_failed_is_named_to_nobody() -> None:
    service = full_node(Inventory(SERVICE))
    state, asker = service.state, service.pool.make_link(dialled=False)
    nearest = state.table.closest(state.own, 1)[0]
    before = read_answer(service.server._find(asker, state.own, value=False)).contacts
    state.book.failed(nearest.id, 0.0)
    after = read_answer(service.server._find(asker, state.own, value=False)).contacts

    assert nearest.id in {each.id for each in before}
    assert nearest.id not in {each.id for each in after}
    await service.close()


async def test_one_namer_has_us_dial_twenty_addresses_a_second() -> None:
    service = full_node(Inventory(SERVICE, LoopClock()))
    contacts = list(service.state.table.contacts())[:41]
    dialled = [service.pool._may_dial(contact, 7) for contact in contacts[:40]]
    await pause("test", 1.0)

    assert sum(dialled) == 20
    assert service.pool._may_dial(contacts[40], 7)
    await service.close()


async def test_a_node_that_hears_from_nobody_evicts_nobody() -> None:
    service = full_node(Inventory(SERVICE, LoopClock()))
    state, first = service.state, next(iter(service.state.table.contacts()))
    queue = service.route.queues[bucket_of(state.own, first.id)]
    await service.pinger._ask(first)
    assert queue.depth == 0, "the network is gone, not this contact"

    state.book.answered_at = state.monotonic()
    await service.pinger._ask(first)
    assert queue.depth == 1
    await service.close()


async def test_before_a_node_believes_to_be_alone_it_asks_some_contacts_and_looks_when_the_minute_is_over() -> None:
    # Addresses that nobody dials fail at once: whom it asked is failing.
    service = full_node(Inventory(SERVICE, LoopClock()), "224.0.0.1")
    state, bootstrapper = service.state, service._bootstrapper
    state.book.answered_at = state.monotonic()
    await bootstrapper._ask_around()
    assert (len(state.book.failing), bootstrapper._recheck_s()) == (0, 30.0)

    await pause("test", 45.0)
    assert bootstrapper._recheck_s() == pytest.approx(15.1)
    await bootstrapper._ask_around()
    assert len(state.book.failing) == 3
    await service.close()
