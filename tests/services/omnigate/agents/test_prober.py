"""A service behind that fell ill is asked again by the gateway itself.

While writes are shed no request may come to do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from penstock.contracts import mailbox as m
from penstock.contracts.call import Call
from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import DownstreamUnavailable, NotFound, NotReady
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.services.omnigate.agents.prober import DIAL_EVERY, LOOK_S, Prober
from penstock.services.omnigate.agents.readiness import Readiness
from penstock.services.omnigate.config import FairOptions, OmnigateOptions, QuotaOptions
from penstock.services.omnigate.service import GatewayBackends, OmnigateService
from tests.net.server.listener_kit import Site, post, settle

OFF = QuotaOptions(default_rps=0, per_ip_rps=0, per_cap_rps=0)
OPEN_S = BreakerPolicy().open_s


class Fickle:
    """A mailbox that can be told to be ill, or not to be there."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.asked: list[str] = []

    async def send(self, _send: m.Send, _call: Call) -> m.Sent:
        """Store, or fail."""
        self._ask("send")
        return m.Sent("id", duplicate=False, shard=0)

    async def topic(self, _topic: m.GetTopic, _call: Call) -> m.TopicStats:
        """Know no topic, or fail."""
        self._ask("topic")
        raise NotFound("There is no such topic.")

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if self.error is not None:
            raise self.error


class Hung:
    """Services that are reached and never answer."""

    def __init__(self) -> None:
        self.hung = True
        self.asked = 0

    async def _ask(self, *_: object) -> None:
        self.asked += 1
        if self.hung:
            await asyncio.Event().wait()
        raise NotFound("There is nothing.")

    topic = keys = head = status = endpoints = _ask


class Running(Site):
    """A gateway that runs, and who is behind it."""

    service: OmnigateService
    mailbox: Fickle
    supervisor: Supervisor

    async def send(self) -> int:
        """Send one message; return the status."""
        client = self.connect()
        client.send(post("/v1/mailbox/orders", b"x"))
        return (await client.answer()).status


@asynccontextmanager
async def running(error: Exception | None = None, **behind: Any) -> AsyncIterator[Running]:
    """Run the whole gateway but for its sockets, in front of a fickle mailbox."""
    inventory, mailbox = Inventory("omnigate", LoopClock()), Fickle(error)
    options = OmnigateOptions(quotas=OFF, fair=FairOptions(adaptive=False))
    service = OmnigateService(inventory, options, behind=GatewayBackends(mailbox=cast("m.Mailbox", mailbox), **behind))
    listener = Listener(inventory, ListenerOptions(host=None), service.routes, admission=service.gate.admit)
    supervisor = Supervisor(inventory, service.children())
    await supervisor.start()
    await listener.start()
    site = Running(listener, inventory, [])
    site.service, site.mailbox, site.supervisor = service, mailbox, supervisor
    try:
        yield site
    finally:
        for client in site.clients:
            client.transport.abort()
        await listener.close()
        await supervisor.drain()
        await service.close()
        await settle()


async def fall_ill(site: Running) -> None:
    """Fail until the breaker is open and readiness has seen it."""
    site.mailbox.error = DownstreamUnavailable("Gone.")
    while site.service.downstreams["svc-mailbox"].healthy:
        assert await site.send() == 503
    await asyncio.sleep(0.5)


async def test_a_gateway_that_is_only_written_to_takes_writes_again_once_the_service_is_well() -> None:
    async with running() as site:
        assert await site.send() == 200
        await fall_ill(site)
        shed = await site.send()
        site.mailbox.error = None
        await asyncio.sleep(OPEN_S + 2)
        after = await site.send()

    assert shed == 503
    assert after == 200


async def test_while_it_is_ill_it_is_asked_once_each_time_its_breaker_lets_one_through() -> None:
    async with running() as site:
        await fall_ill(site)
        site.mailbox.asked.clear()
        await asyncio.sleep(10 * OPEN_S + 1)
        asked = list(site.mailbox.asked)
        degraded = site.service.gate.degraded

    assert degraded
    assert set(asked) == {"topic"}
    assert 8 <= len(asked) <= 11


async def test_who_is_well_is_not_asked() -> None:
    async with running() as site:
        await site.send()
        await asyncio.sleep(60)
        asked = site.mailbox.asked

    assert asked == ["send"]


async def test_a_service_in_another_process_is_asked_for_at_the_start_and_told_until_it_is_there() -> None:
    gone = DownstreamUnavailable("Nobody listens.")
    async with running(gone, distant=frozenset({"svc-mailbox"})) as site:
        await asyncio.sleep(1)
        at_first = site.inventory.health.verdict().degraded
        site.mailbox.error = None
        await asyncio.sleep(DIAL_EVERY * LOOK_S)
        later = site.inventory.health.verdict().degraded

    assert at_first == ("downstreams",)
    assert later == ()
    assert site.mailbox.asked == ["topic", "topic"]


async def test_one_that_was_never_set_up_is_no_illness() -> None:
    async with running() as site:
        site.mailbox.error = NotReady("It does not run here.", phase="absent")
        statuses = {await site.send() for _ in range(100)}
        await asyncio.sleep(1)

        assert statuses == {503}
        assert site.service.downstreams["svc-mailbox"].healthy
        assert not site.service.gate.degraded
        assert site.mailbox.asked == ["send"] * 100


async def _fails() -> None:
    raise DownstreamUnavailable("Gone.")


async def test_services_that_all_hang_are_asked_one_question_at_a_time_and_found_again() -> None:
    inventory, hung = Inventory("omnigate", LoopClock()), Hung()
    behind = GatewayBackends(
        mailbox=cast("Any", hung),
        passport=cast("Any", hung),
        storage=cast("Any", hung),
        dht=cast("Any", hung),
        interop=cast("Any", hung),
    )
    service = OmnigateService(inventory, OmnigateOptions(quotas=OFF), behind=behind)
    supervisor = Supervisor(inventory, service.children())
    await supervisor.start()
    for downstream in service.downstreams.values():
        while downstream.healthy:
            with pytest.raises(DownstreamUnavailable):
                await downstream.call("fail", _fails, idempotent=False)
    await asyncio.sleep(120)
    missing = inventory.health.verdict().missing
    asked_while_hung, hung.hung = hung.asked, False
    await asyncio.sleep(OPEN_S + 10)
    well = [downstream.healthy for downstream in service.downstreams.values()]
    await supervisor.drain()
    await service.close()

    assert missing == ()
    assert asked_while_hung >= 5 * 5
    assert well == [True] * 5


async def test_a_look_at_many_upstreams_asks_what_is_served_once_not_for_each() -> None:
    inventory, asked = Inventory("omnigate", LoopClock()), 0
    readiness = Readiness(inventory, cast("Any", None), {})
    names = [f"/r{number} (http://h)" for number in range(50)]

    def served() -> list[str]:
        nonlocal asked
        asked += 1
        return names[1:]

    prober = Prober({}, readiness)
    run = partial(prober.run, distant=dict.fromkeys(names, _fails), served=served)
    supervisor = Supervisor(inventory, [ChildSpec("prober", run)])
    await supervisor.start()
    await asyncio.sleep(DIAL_EVERY * LOOK_S * 3.5)
    unreached = readiness.unreached
    await supervisor.drain()

    assert unreached == sorted(names[1:])
    assert asked == 2 * 4  # before each round of dialling, and after it
