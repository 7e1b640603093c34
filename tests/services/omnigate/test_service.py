"""The gateway as a whole, before anything runs: what its settings come to."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import DownstreamUnavailable
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.omnigate.agents.prober import DIAL_EVERY, LOOK_S
from penstock.services.omnigate.config import FairOptions, OmnigateOptions
from penstock.services.omnigate.service import GatewayBackends, OmnigateService


def service(**options: object) -> OmnigateService:
    """Make a gateway with nothing behind it."""
    inventory = Inventory("omnigate", LoopClock())
    return OmnigateService(inventory, OmnigateOptions(**options), behind=GatewayBackends())  # type: ignore[arg-type]


@pytest.mark.parametrize(("pool_size", "at_once"), [(3, 3), (8, 8), (100, 8)])
async def test_no_more_requests_run_at_once_than_there_are_workers(pool_size: int, at_once: int) -> None:
    made = service(pool_size=pool_size, fair=FairOptions(max_inflight=8, adaptive=False))

    assert made.gate.queue.limit == at_once
    await made.close()


async def test_an_upstream_that_is_not_there_at_the_start_is_told_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made, there = service(), asyncio.Event()

    async def dial() -> None:
        if not there.is_set():
            raise DownstreamUnavailable("Nobody listens.")

    monkeypatch.setattr(made.proxies, "probes", lambda: {"/shop (http://a.test)": dial})
    told = []
    supervisor = Supervisor(made._inventory, [each for each in made.children() if each.name == "upstream_prober"])
    await supervisor.start()
    for _ in range(2):
        await asyncio.sleep(DIAL_EVERY * LOOK_S + 1)
        made.readiness.look()
        told.append(made._inventory.health.verdict().degraded)
        there.set()
    await supervisor.drain()
    await made.close()

    assert told == [("downstreams",), ()]
