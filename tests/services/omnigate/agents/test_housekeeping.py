"""Housekeeping: samples four times a second, forgets what is stale, stops when asked."""

from __future__ import annotations

import asyncio

from penstock.kernel.child import ChildSpec
from penstock.kernel.supervisor import Supervisor
from penstock.services.omnigate.config import QuotaOptions
from tests.services.omnigate.gate.kit import gated


async def test_gauges_are_sampled_every_250_ms_and_stale_tenants_are_forgotten() -> None:
    async with gated(QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=5, per_cap_rps=5), max_inflight=1) as site:
        supervisor = Supervisor(site.inventory, [ChildSpec("housekeeping", site.housekeeping.run)])
        await supervisor.start()
        first = await site.ask("/open")
        second = await site.ask("/open")
        anon = {"class": "anon"}
        early = site.count("fq_inflight", **anon), site.count("queue_depth", queue="work")
        await asyncio.sleep(0.26)
        sampled = site.count("fq_inflight", **anon), site.count("queue_depth", queue="work")
        site.work.answer()
        await first.answer()
        site.work.answer()
        await second.answer()
        await asyncio.sleep(15.0)
        left = site.gate.queue.tenants, len(site.gate.quotas.per_ip)
        await supervisor.drain()

    assert early == (0, 0)
    assert sampled == (1, 1)
    assert left == (0, 0)
