"""Agents that never come to rest still do what they do every half minute. On virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import pause
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.kernel.worker import Job
from penstock.services.dht.agents.record_keeper import Keeping
from penstock.services.dht.agents.republisher import Announce, OwnJob
from penstock.services.dht.config import DhtOptions
from penstock.services.dht.core.readiness import PeerReadiness
from penstock.services.dht.core.record import RecordSigner, make_record
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
            job: OwnJob = Job(Announce(key, ("a",), 3600))
            republisher.queue.try_send(job)
            await job.reply
            republisher.own[key] = replace(republisher.own[key], published_ms=OLD_MS)
            await pause("test", 10.0)

        assert inventory.metrics.value("provider_republish_total", result="ok") > 0


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.6, 0.9])
async def test_a_record_that_counts_for_a_minute_is_always_published_again_in_time(jitter: float) -> None:
    async with agents_alone() as (service, _):
        service.republisher._jitter = jitter
        job: OwnJob = Job(Announce(7, ("a",), 60))
        service.republisher.queue.try_send(job)
        await job.reply
        for _ in range(600):
            await pause("test", 1.0)
            own = service.republisher.own[7]
            assert own.issued_ms + 60_000 > service.state.wall_ms(), "the last one that went out still counts"
