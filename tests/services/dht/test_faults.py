"""Faults at the wrong moment: a peer that hangs up, a full disk, a place taken meanwhile, an agent that dies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.contracts import dht as d
from penstock.contracts.call import NOBODY
from penstock.kernel.errors import Busy, Timeout
from penstock.services.dht.core.ids import parse_key
from penstock.services.dht.core.republish import DuePlan
from penstock.services.dht.peers.links_ahead import OPENED_AGAIN_S
from tests.services.dht.kit import KEY, RunningNode, options, start, swarm, until

pytestmark = pytest.mark.real_loop
OLD_MS = 1


def due(node: RunningNode) -> None:
    """Make the node's own records look as if they had been published long ago."""
    own = node.service.republisher.own
    for key, record in own.items():
        own[key] = replace(record, published_ms=OLD_MS)


def keep_at_most(node: RunningNode, links: int) -> None:
    """Change how many links a node may keep."""
    node.service.state.options = replace(node.service.state.options, peer_conns=links)


async def test_a_peer_that_hangs_up_while_it_is_verified_leaves_no_dead_link() -> None:
    node = await start(options())
    try:
        pool = node.service.pool
        gone = pool.make_link(dialled=False)
        gone.peer = gone.dialler = 7
        pool.adopt(gone)

        assert 7 not in pool.links
    finally:
        await node.stop()


async def test_of_too_many_links_one_to_a_peer_that_does_not_answer_is_closed_first_and_never_the_newest() -> None:
    async with swarm(3) as nodes:
        pool, links = nodes[0].service.pool, nodes[0].service.pool.links
        await until(lambda: nodes[1].own in links and nodes[2].own in links, "both links")
        await until(lambda: not any(link.pending for link in links.values()), "a quiet moment")
        nobody = pool.make_link(dialled=False)
        chosen = pool._kept.superfluous(nobody, set(), partial(pool._rank, 0.0))
        assert chosen is not None
        # The one that would have stayed if both answered.
        other = chosen.peer
        failing = next(peer for peer in links if peer != other)
        pool._state.book.failed(failing, 0.0)
        keep_at_most(nodes[0], 1)
        pool._make_room(nobody)
        await until(lambda: failing not in links, "the drop")
        keep_at_most(nodes[0], 0)
        pool._make_room(links[other])

        assert links[other].is_open


async def test_links_that_come_in_one_turn_do_not_stay_above_the_cap() -> None:
    async with swarm(5) as nodes:
        pool, links = nodes[0].service.pool, nodes[0].service.pool.links
        await until(lambda: len(links) == 4, "all links")
        await until(lambda: not any(link.pending for link in links.values()), "a quiet moment")
        keep_at_most(nodes[0], 2)
        newest = next(iter(links.values()))
        pool._make_room(newest)
        pool._make_room(newest)

        assert sum(link.is_open for link in links.values()) == 2, "those being closed are not chosen again"


async def test_a_link_opened_ahead_that_its_peer_closed_is_not_opened_again_at_once() -> None:
    async with swarm(2) as nodes:
        pool, peer = nodes[1].service.pool, nodes[0].own
        await until(lambda: peer in pool.links and len(nodes[1].service.state.table) == 1, "the link")
        now, dialled = pool._state.monotonic(), list[bool]()
        pool.ahead._tried_at.clear()
        for later_s in (0.0, 10.0, OPENED_AGAIN_S + 10.0):
            pool.links[peer].abort()
            await until(lambda: peer not in pool.links, "the close")
            pool.ahead.open(now + later_s)
            dialled.append(peer in pool._dials)
            await nodes[1].service.pool.dial(*nodes[0].address)
            await until(lambda: not pool._dials, "the dial")

        assert dialled == [True, False, True]


async def test_an_answered_keep_alive_counts_as_a_verification() -> None:
    async with swarm(2) as nodes:
        state, pool, peer = nodes[1].service.state, nodes[1].service.pool, nodes[0].own

        def verified_at() -> float:
            return next(at for view in state.table.views for at in view.verified_at)

        await until(lambda: peer in pool.links and len(state.table) == 1, "the contact")
        before = verified_at()
        pool.links[peer].heard_at -= 100.0
        # More than a minute of silence would close it; a request under way keeps it open.
        pool.links[peer].request(5, b"\xa0", lambda _reply: None, 1.0)
        pool._look_after(state.monotonic())
        await until(lambda: verified_at() > before, "the verification")

        assert peer not in state.book.failing


async def test_an_event_log_that_dies_leaves_no_reader_behind() -> None:
    node = await start(options())
    try:
        broadcast = node.service.events.broadcast
        await until(lambda: broadcast.receivers == 1, "the first reader")
        spawned = node.count("tasks_spawned_total", kind="event_log")
        assert node.supervisor.kill("event_log")
        await until(lambda: node.count("tasks_spawned_total", kind="event_log") > spawned, "the restart")
        await until(lambda: broadcast.receivers == 1, "one reader")
    finally:
        await node.stop()


async def test_a_disk_that_fails_refuses_the_announcement_and_ends_nobody(tmp_path: Path) -> None:
    node = await start(options(directory=tmp_path))
    try:
        await until(lambda: node.service.state.readiness.ready, "readiness")
        files = node.service.republisher._files
        assert files._db is not None
        spawned = node.count("tasks_spawned_total", kind="republisher")
        files._db.close()
        with pytest.raises(Busy):
            await node.service.api.provide(d.Provide(KEY))

        assert node.count("tasks_spawned_total", kind="republisher") == spawned
        assert not node.service.republisher.own
    finally:
        files._db = None
        await node.stop()


async def test_a_region_whose_place_was_taken_meanwhile_is_published_at_the_next_look() -> None:
    node = await start(options())
    try:
        await until(lambda: node.service.state.readiness.ready, "readiness")
        republisher = node.service.republisher
        await node.service.api.provide(d.Provide(KEY))
        await until(lambda: bool(republisher.own[parse_key(KEY)].published_ms), "the note")
        due(node)
        tending = asyncio.ensure_future(republisher._tend_if_possible())
        await asyncio.sleep(0)
        # Both places of the scope are taken while the records are being written.
        republisher.save_candidates([("127.0.0.1", 1)])
        republisher.save_candidates([("127.0.0.1", 1)])
        await tending

        assert not republisher._under_way
        await until(lambda: not len(republisher._scope or ()), "free places")
        due(node)
        await republisher._tend_if_possible()
        await until(lambda: node.count("provider_republish_total", result="ok") == 1, "publishing again")
    finally:
        await node.stop()


async def test_a_region_that_could_not_be_walked_to_is_due_again() -> None:
    node = await start(options())
    try:
        await until(lambda: node.service.state.readiness.ready, "readiness")
        republisher, workers = node.service.republisher, node.service.workers
        await node.service.api.provide(d.Provide(KEY))
        due(node)
        plan = DuePlan(0, node.service.state.wall_ms(), 0.0)
        plan.look(republisher.own.values())
        region = plan.regions()[0]
        workers._places.try_acquire_many(4)
        republisher._under_way.update(region.keys)
        await republisher._publish_region(region, [republisher._sign(own) for own in republisher.own.values()])

        assert not republisher._under_way
        assert node.count("provider_republish_total", result="failed") == 1
    finally:
        await node.stop()


async def test_a_stream_that_nobody_answered_ends_with_a_timeout() -> None:
    async with swarm(2) as nodes:
        await until(lambda: bool(len(nodes[1].service.state.table)), "the contact")
        nodes[0].service.pool.fall_silent(silent=True)

        with pytest.raises(Timeout):
            async for _ in nodes[1].service.api.stream(d.Find(KEY, wait_ms=50), NOBODY):
                pass
