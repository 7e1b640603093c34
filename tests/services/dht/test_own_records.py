"""A node's own records over time, and agents that never come to rest. On virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import pause
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.kernel.worker import Job
from penstock.services.dht.agents.own_records import OwnFiles, OwnRecord
from penstock.services.dht.agents.record_keeper import Keeping
from penstock.services.dht.agents.republisher import Announce, OwnCommand, OwnJob, Retract, SignedRecord
from penstock.services.dht.config import DhtOptions
from penstock.services.dht.core.readiness import PeerReadiness
from penstock.services.dht.core.record import RecordSigner, make_record
from penstock.services.dht.protocol.messages import read_answer
from penstock.services.dht.service import SERVICE, DhtService

AGENTS = {"republisher", "event_log", "record_keeper", "lookup_worker"}
WALL_AT_START = 1_800_000_000.0
OLD_MS = 1


@asynccontextmanager
async def agents_alone() -> AsyncIterator[tuple[DhtService, Inventory]]:
    """Run a node's agents without its listeners: nobody else is there."""
    inventory = Inventory(SERVICE, LoopClock(WALL_AT_START))
    service = DhtService(inventory, DhtOptions())
    children = [child for child in service.children() if child.name in AGENTS]
    supervisor = Supervisor(inventory, children, service.supervision())
    await supervisor.start()
    try:
        service.state.readiness = PeerReadiness(ready=True, alone=True, reason="Alone.")
        yield service, inventory
    finally:
        await supervisor.drain()
        await service.close()


async def done(service: DhtService, command: OwnCommand) -> SignedRecord:
    """Have the republisher do something, and return what it signed."""
    job: OwnJob = Job(command)
    service.republisher.queue.try_send(job)
    signed = await job.reply
    assert signed is not None
    return signed


async def test_a_publishers_count_grows_with_every_record_also_while_the_clock_stands_still() -> None:
    async with agents_alone() as (service, _):
        counts = [(await done(service, Announce(7, ("a",), 3600))).record.seq for _ in range(3)]
        counts.append((await done(service, Retract(7))).record.seq)

        assert counts == sorted(set(counts))


async def test_a_withdrawal_counts_for_what_is_left_of_the_ttl_is_never_repeated_and_then_forgotten() -> None:
    async with agents_alone() as (service, _):
        own = service.republisher.own
        await done(service, Announce(7, ("a",), 3600))
        # The first look publishes it; it is not due again before a quarter of its interval, which is 405 s.
        await pause("test", 35.0)
        last_ms = own[7].issued_ms + 3600 * 1000
        await pause("test", 300.0)
        assert own[7].issued_ms + 3600 * 1000 == last_ms
        withdrawn = (await done(service, Retract(7))).record
        assert withdrawn.addrs == ()
        assert withdrawn.expires_ms == pytest.approx(last_ms, abs=1000)
        own[7] = replace(own[7], published_ms=OLD_MS)
        await pause("test", 3200.0)

        assert own[7].seq == withdrawn.seq
        await pause("test", 200.0)
        assert 7 not in own


async def test_a_keeper_to_which_records_never_stop_coming_removes_the_expired_ones() -> None:
    async with agents_alone() as (service, _):
        signer, answers = RecordSigner(b"\x07" * 32), list[bytes]()
        for key in range(30):
            now_ms = service.state.wall_ms()
            record = make_record(signer, key, ("a",), seq=1, issued_ms=now_ms, ttl_s=60)
            service.records.try_send(Keeping(record, None, answers.append))
            await pause("test", 10.0)

        assert len(answers) == 30
        # One comes every 10 s and counts for 60 s, and what has expired may stay for another half minute.
        assert len(service.keeper.book) <= 10


async def test_a_node_that_never_stops_announcing_publishes_its_earlier_records_again() -> None:
    async with agents_alone() as (service, inventory):
        republisher = service.republisher
        for key in range(1, 20):
            await done(service, Announce(key, ("a",), 3600))
            republisher.own[key] = replace(republisher.own[key], published_ms=OLD_MS)
            await pause("test", 10.0)

        assert inventory.metrics.value("provider_republish_total", result="ok") > 0


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.6, 0.9])
async def test_a_record_that_counts_for_a_minute_is_always_published_again_in_time(jitter: float) -> None:
    async with agents_alone() as (service, _):
        service.republisher._jitter = jitter
        await done(service, Announce(7, ("a",), 60))
        for _ in range(600):
            await pause("test", 1.0)
            own = service.republisher.own[7]
            assert own.issued_ms + 60_000 > service.state.wall_ms(), "the last one that went out still counts"


async def test_a_record_that_is_being_published_is_not_published_beside_that() -> None:
    async with agents_alone() as (service, inventory):
        republisher = service.republisher
        await done(service, Announce(7, ("a",), 3600))
        republisher.own[7] = replace(republisher.own[7], published_ms=OLD_MS)
        republisher._under_way.add(7)
        await pause("test", 100.0)

        assert inventory.metrics.value("provider_republish_total", result="ok") == 0
        republisher._under_way.discard(7)
        await pause("test", 100.0)
        assert inventory.metrics.value("provider_republish_total", result="ok") > 0


def test_own_records_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    own = OwnRecord(7, ("a", "b"), 3600, 5, 6, 7, withdrawn=True, keepers=("x@h:1", "y@h:2"))
    first, second = OwnFiles(tmp_path / "dht"), OwnFiles(tmp_path / "dht")
    seed, _, _ = first.open()
    first.put([own])
    first.close()

    assert second.open() == (seed, [own], [])
    second.close()


async def test_a_record_that_is_too_old_is_refused_before_anything_is_spent_on_its_signature() -> None:
    async with agents_alone() as (service, inventory):
        signer, now, answers = RecordSigner(b"\x07" * 32), service.state.wall_ms(), list[bytes]()
        newer, older = (make_record(signer, 1, ("a",), seq=seq, issued_ms=now, ttl_s=60) for seq in (2, 1))
        forged = replace(older, signatures=(bytes(64),))
        for record in (newer, forged):
            service.records.try_send(Keeping(record, None, answers.append))
        await pause("test", 1.0)

        assert [read_answer(answer).accepted for answer in answers] == [True, False]
        assert inventory.metrics.value("dht_records_refused_total", reason="stale") == 1
        assert inventory.metrics.value("dht_records_refused_total", reason="forged") == 0
