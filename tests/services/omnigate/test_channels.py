"""Every channel the gateway declares is written by somebody and read by somebody, and its keys do what they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config import listener_settings
from penstock.kernel.bus import HealthChanged
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.omnigate.agents import readiness
from penstock.services.omnigate.config import OmnigateOptions
from penstock.services.omnigate.service import GatewayBackends, OmnigateService
from tests.services.omnigate.test_reload import settings


@asynccontextmanager
async def running(*sets: str) -> AsyncIterator[tuple[OmnigateService, Supervisor]]:
    """Run a gateway with nothing behind it and no socket."""
    given = settings(*sets)
    listener = replace(listener_settings(given, "omnigate"), host=None)
    inventory = Inventory("omnigate", LoopClock())
    made = OmnigateService(inventory, OmnigateOptions.from_settings(given, listener), behind=GatewayBackends())
    supervisor = Supervisor(inventory, made.children(), made.supervision())
    await supervisor.start()
    try:
        yield made, supervisor
    finally:
        await supervisor.drain()
        await made.close()


async def test_a_death_is_told_on_events_and_readiness_looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LOOK_S", 3600.0)
    async with running() as (made, supervisor):
        looks: list[float] = []
        look = made.readiness.look
        monkeypatch.setattr(made.readiness, "look", lambda: looks.append(asyncio.get_running_loop().time()) or look())
        listening = made.events.subscribe()
        assert made.events.receivers == 2
        assert supervisor.kill("housekeeping")
        async with asyncio.timeout(1):
            told = await listening.recv()
        await asyncio.sleep(0.01)

        assert isinstance(told, HealthChanged)
        assert (told.service, told.gate) == ("omnigate", "housekeeping")
        assert looks


async def test_a_readiness_that_lags_is_named_and_looks_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async with running("omnigate.channels.events=7") as (made, _):
        assert made.events.capacity == 7
        for number in range(20):
            made.events.publish(HealthChanged("omnigate", ok=True, gate=str(number)))
        await asyncio.sleep(0.01)
        (said,) = [record for record in caplog.records if record.message == "bus.lagged"]

        assert (said.fields["subscriber"], said.fields["bus"]) == ("readiness", "events")  # type: ignore[attr-defined]
        assert made.events.lagged == said.fields["lost"]  # type: ignore[attr-defined]


async def test_a_reload_is_one_write_of_the_watch_and_everybody_goes_by_it(tmp_path: Path) -> None:
    bundle = tmp_path / "policy.toml"
    bundle.write_text('default_action = "allow"\n')
    async with running() as (made, _):
        before, policy = made.settings.version, made._policy
        made.apply(settings(f"omnigate.policy={bundle}", "omnigate.quotas.per_ip_rps=7", "omnigate.read_timeout=9s"))
        now = made.settings.value

        assert made.settings.version == before + 1
        assert (now.quotas.per_ip_rps, now.read_timeout_s) == (7, 9.0)
        assert (made.gate.quotas.per_ip.rate, made._objects.reads.chunk_s) == (7, 9.0)
        assert made._policy is not policy
