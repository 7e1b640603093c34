"""A running gateway follows the settings that are marked live; the others say that they need a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.config import Apply, Settings, Sources, listener_settings, load, node_schema
from penstock.config.listener import HTTP
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.services.omnigate.config import TABLE, OmnigateOptions
from penstock.services.omnigate.gate.policy import BundleRefused
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.services.omnigate.proxy.live_routes import NewRoute
from penstock.services.omnigate.service import GatewayBackends, OmnigateService
from tests.net.server.listener_kit import get, post
from tests.services.omnigate.proxy.kit import gateway, ok, says

# Followed by `OmnigateService.apply`; the rest of what is live is the listener's and the supervisor's.
FOLLOWED = {
    "policy", "routes", "fair_queue.adaptive", "quotas.default_rps", "quotas.burst_rps", "quotas.per_ip_rps",
    "quotas.per_cap_rps",
}  # fmt: skip


def settings(*sets: str) -> Settings:
    """Load settings of a gateway alone."""
    return load(node_schema(TABLE), Sources(sets=("node.ephemeral_ports=true", *sets)))


def service(given: Settings) -> OmnigateService:
    """Make a gateway with one upstream and nothing else behind it."""
    made = OmnigateOptions.from_settings(given, listener_settings(given, "omnigate"))
    routes = (ProxyRoute(prefix=("shop",), upstreams=("http://127.0.0.1:9",)),)
    options = OmnigateOptions(fair=made.fair, quotas=made.quotas, listener=made.listener, routes=routes)
    return OmnigateService(Inventory("omnigate", LoopClock()), options, behind=GatewayBackends())


def test_whatever_is_called_live_is_followed() -> None:
    common = {key.name for key in HTTP.keys} | {"drain_deadline"}

    assert {key.name for key in TABLE.keys if key.apply is Apply.LIVE} - common == FOLLOWED


async def test_the_limit_becomes_fixed_and_adaptive_again() -> None:
    made, limits = service(settings()), []
    for flag in ("false", "false", "true"):
        made.apply(settings(f"omnigate.fair_queue.adaptive={flag}"))
        limits.append(made.gate.queue.limit)
    await made.close()

    assert limits[:2] == [512, 512]
    assert limits[2] < 512


async def test_an_adaptive_limit_keeps_what_it_learned_through_a_reload() -> None:
    made = service(settings())
    before = made.gate.limit
    made.apply(settings("omnigate.quotas.per_ip_rps=7"))
    await made.close()

    assert made.gate.limit is before


async def test_the_listeners_timeouts_hold_towards_upstreams_and_the_store_too() -> None:
    made = service(settings("omnigate.read_timeout=7s", "omnigate.write_timeout=8s"))
    waits = [upstream.pool._shared.timeouts for proxy in made.proxies.proxies for upstream in proxy.upstreams.all]
    at_first = [(each.read_s, each.write_s) for each in waits], made._objects.reads.chunk_s
    made.apply(settings("omnigate.read_timeout=70s", "omnigate.write_timeout=80s"))
    later = [(each.read_s, each.write_s) for each in waits], made._objects.reads.chunk_s
    await made.close()

    assert at_first == ([(7.0, 8.0)], 7.0)
    assert later == ([(70.0, 80.0)], 70.0)


async def test_a_route_that_comes_after_a_reload_has_the_times_of_that_reload() -> None:
    made = service(settings("omnigate.read_timeout=7s", "omnigate.write_timeout=8s"))
    made.apply(settings("omnigate.read_timeout=70s", "omnigate.write_timeout=80s"))
    made.live_routes.add(NewRoute("/late", ("http://127.0.0.1:9",)))
    waits = [upstream.pool._shared.timeouts for proxy in made.proxies.proxies for upstream in proxy.upstreams.all]
    await made.close()

    assert [(each.read_s, each.write_s) for each in waits] == [(70.0, 80.0)]


async def test_a_stalled_answer_is_cut_by_the_time_of_the_last_reload() -> None:
    async with gateway(says(ok(b"x" * 200_000)[:100_000])) as gate:
        loop = asyncio.get_running_loop()
        gate.proxies.retime(2.0, 2.0)
        began = loop.time()
        await gate.raw(get("/api/x"))

        assert loop.time() - began == pytest.approx(2.0, abs=0.1)


async def test_a_configured_route_takes_no_larger_bodies_than_the_listener() -> None:
    async with gateway(says(ok()), listener={"body_bytes_max": 1000}) as gate:
        small, large = await gate.ask(post("/api/x", b"x" * 1000)), await gate.ask(post("/api/x", b"x" * 1001))

    assert (small.status, large.status) == (200, 413)


async def test_a_bundle_that_does_not_load_is_told_and_the_rest_of_the_reload_holds(tmp_path: Path) -> None:
    bundle = tmp_path / "policy.toml"
    bundle.write_text("rules = 7\n")
    made = service(settings())
    with pytest.raises(BundleRefused):
        made.apply(settings(f"omnigate.policy={bundle}", "omnigate.quotas.per_ip_rps=7"))
    await made.close()

    assert made.gate.quotas.per_ip.rate == 7
    assert made.readiness.reload.degraded
