"""The places of a downstream go round among the tenants that wait; nothing is lost, and nobody light is refused."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import mailbox as m
from penstock.contracts.call import Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import Limiter
from penstock.kernel.supervisor import Supervisor
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.services.omnigate.config import FairOptions, OmnigateOptions, QuotaOptions
from penstock.services.omnigate.own.fair_slots import FairSlots
from penstock.services.omnigate.service import GatewayBackends, OmnigateService
from penstock.testing.sweep import Run, sweep
from tests.capability.kit import Issuer
from tests.net.server.listener_kit import Site, post, settle

SERVICE_S = 0.02
FLOOD = 500


async def take(places: FairSlots, tenant: object) -> None:
    """Take a place, sooner or later."""
    if not places.try_take():
        await places.wait(tenant)


async def test_a_place_that_comes_back_goes_to_each_tenant_in_turn() -> None:
    places, order = FairSlots(Limiter("x", 1), 100), []

    async def work(tenant: str) -> None:
        await take(places, tenant)
        order.append(tenant)
        await asyncio.sleep(1)
        places.give()

    async with asyncio.TaskGroup() as all_of_them:
        for tenant in ("flood", "flood", "flood", "flood", "ada", "bob", "ada"):
            all_of_them.create_task(work(tenant))

    assert order == ["flood", "flood", "ada", "bob", "flood", "ada", "flood"]


async def test_more_than_may_wait_are_refused_at_once() -> None:
    limiter = Limiter("x", 1)
    places = FairSlots(limiter, 1)
    await take(places, "ada")
    waiter = asyncio.get_running_loop().create_task(take(places, "ada"))
    await asyncio.sleep(0)

    with pytest.raises(Busy):
        await take(places, "bob")
    places.give()
    await waiter
    places.give()
    assert (limiter.in_use, limiter.refused) == (0, 1)


def test_a_wait_that_is_cancelled_at_any_step_loses_no_place() -> None:
    async def scenario(run: Run[tuple[int, int]]) -> tuple[int, int]:
        limiter = Limiter("x", 1)
        places = FairSlots(limiter, 10)

        async def work(tenant: str) -> None:
            await take(places, tenant)
            try:
                await asyncio.sleep(0)
            finally:
                places.give()

        await take(places, "first")
        run.start(work("ada"))
        others = [asyncio.get_running_loop().create_task(work(tenant)) for tenant in ("ada", "bob")]
        await asyncio.sleep(0)
        places.give()
        await run.ended()
        await asyncio.wait(others)
        return limiter.in_use, places.waiting

    def nothing_is_held(outcome: tuple[int, int]) -> None:
        assert outcome == (0, 0)

    sweep(scenario, check=nothing_is_held)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["take", "give", "cancel"])), max_size=60))
async def test_whatever_happens_every_place_is_either_held_or_free(steps: list[tuple[int, str]]) -> None:
    limiter = Limiter("x", 2)
    places = FairSlots(limiter, 5)
    tasks: list[asyncio.Task[None]] = []
    held = 0
    for tenant, act in steps:
        if act == "take" and places.waiting < 5:
            tasks.append(asyncio.get_running_loop().create_task(take(places, tenant)))
        elif act == "give" and held:
            places.give()
            held -= 1
        elif act == "cancel" and tasks:
            tasks.pop(tenant % len(tasks)).cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        held += sum(task.done() and not task.cancelled() for task in tasks)
        tasks = [task for task in tasks if not task.done()]
        assert (limiter.in_use, places.waiting) == (held, len(tasks))
        assert not (tasks and limiter.free)
    for task in tasks:
        task.cancel()
    await asyncio.sleep(0)
    assert (places.waiting, places._lines) == (0, {})


class Slow:
    """A mailbox that takes its time."""

    async def send(self, _send: m.Send, _call: Call) -> m.Sent:
        """Store."""
        await asyncio.sleep(SERVICE_S)
        return m.Sent("id", duplicate=False, shard=0)


async def test_beside_a_flood_on_the_nodes_own_routes_a_light_tenant_is_served_at_once() -> None:
    inventory, issuer = Inventory("omnigate", LoopClock()), Issuer()
    options = OmnigateOptions(
        quotas=QuotaOptions(default_rps=0, per_ip_rps=0, per_cap_rps=0), fair=FairOptions(adaptive=False)
    )
    behind = GatewayBackends(mailbox=cast("m.Mailbox", Slow()))
    service = OmnigateService(inventory, options, behind=behind, verifier=issuer.verifier)
    settings = ListenerOptions(host=None, max_conns_per_ip=FLOOD + 1)
    listener = Listener(inventory, settings, service.routes, admission=service.gate.admit)
    supervisor = Supervisor(inventory, service.children())
    await supervisor.start()
    await listener.start()
    site = Site(listener, inventory, [])

    def send(tenant: str) -> bytes:
        token = issuer.token(aud=("omnigate",), tenant=tenant)
        issuer.verifier.open(token)
        return post("/v1/mailbox/orders", b"x", f"Authorization: Bearer {token}")

    flood, one = send("flood"), site.connect()
    crowd = [site.connect() for _ in range(FLOOD)]
    for client in crowd:
        client.send(flood)
    await settle()
    began = asyncio.get_running_loop().time()
    one.send(send("light"))
    light = await one.answer()
    took_s = asyncio.get_running_loop().time() - began
    statuses = {(await client.answer()).status for client in crowd}
    for client in site.clients:
        client.transport.abort()
    await listener.close()
    await supervisor.drain()
    await service.close()
    await settle()

    assert light.status == 200
    assert took_s <= 2 * SERVICE_S + 0.001
    assert statuses == {200}
