"""The listener's life: caps, drain, Host and Origin rules, supervision."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.listener import listener_settings, service_table
from penstock.config.load import load
from penstock.config.sources import Sources
from penstock.config.tables import node_schema
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.net.server.caps import address_block, fit_caps
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.listener_config import listener_options
from penstock.testing.transport import memory_pair
from tests.net.server.listener_kit import (
    ROUTES,
    RawClient,
    get,
    post,
    route,
    serving,
    settle,
)


async def test_a_full_house_closes_the_connection_idle_longest_for_a_newcomer() -> None:
    async with serving(options={"max_conns": 2, "max_conns_per_ip": 10}) as site:
        first, second = site.connect(), site.connect()
        first.send(get())
        await first.answer()
        await asyncio.sleep(0.5)
        second.send(get())
        await second.answer()
        await asyncio.sleep(2.0)
        third = site.connect()
        third.send(get())
        answer = await third.answer()
        await settle()

    assert answer.status == 200
    assert first.ended


async def test_a_full_house_without_idle_places_says_429_busy_and_closes() -> None:
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _r: reply)], {"max_conns": 2, "max_conns_per_ip": 10}) as site:
        for _ in range(2):
            site.connect().send(get("/it"))
        await asyncio.sleep(2.0)
        third = site.connect()
        third.send(get("/it"))
        answers = await third.gone()

    assert [(answer.status, answer.json()["limit"]) for answer in answers] == [(429, "max_conns")]
    assert int(answers[0].headers[b"retry-after"]) >= 1


async def test_one_address_holds_at_most_its_share_of_the_places() -> None:
    async with serving(options={"max_conns": 100, "max_conns_per_ip": 3}) as site:
        clients = [site.connect() for _ in range(4)]
        answers = await clients[3].gone()
        clients[0].transport.abort()
        await settle()
        again = site.connect()
        again.send(get())
        served = await again.answer()

    assert [(answer.status, answer.json()["limit"]) for answer in answers] == [(429, "max_conns_per_ip")]
    assert served.status == 200


def test_an_ipv6_address_counts_by_its_64_bit_block() -> None:
    assert address_block("2001:db8::1") == address_block("2001:db8::ffff:1")
    assert address_block("2001:db8::1") != address_block("2001:db8:0:1::1")
    assert address_block("::ffff:10.0.0.1") == "10.0.0.1"


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 20_000), min_size=1, max_size=9), st.integers(1, 70_000))
def test_caps_are_lowered_until_they_fit_the_file_limit_and_never_raised(wanted: dict[str, int], room: int) -> None:
    fitted = fit_caps(wanted, room)

    assert sum(fitted.values()) <= max(room, len(wanted)) + len(wanted)
    assert all(1 <= fitted[name] <= places for name, places in wanted.items())
    assert sum(wanted.values()) > room or fitted == wanted


async def test_draining_answers_readyz_503_refuses_data_and_closes_idle_connections() -> None:
    async with serving() as site:
        idle, busy, probe = site.connect(), site.connect(), site.connect()
        for client in (idle, busy):
            client.send(get())
            await client.answer()
        busy.send(get()[:5])
        probe.send(get()[:5])
        await settle()
        site.listener.stop_intake()
        site.listener.stop_intake()
        busy.send(get()[5:])
        refused = await busy.gone()
        probe.transport.abort()
        late = site.connect()
        late.send(get("/readyz"))
        ready = await late.gone()
        await idle.gone()

    assert [(answer.status, answer.json()["code"]) for answer in refused] == [(503, "not_ready")]
    assert refused[0].headers[b"connection"] == b"close"
    assert [(answer.status, answer.json()["phase"]) for answer in ready] == [(503, "draining")]


async def test_what_is_said_while_draining_is_the_services_choice() -> None:
    async with serving(draining_error=Busy("draining", queue="work")) as site:
        site.listener.stop_intake()
        client = site.connect()
        client.send(get())
        answers = await client.gone()

    assert [(answer.status, answer.json()["code"]) for answer in answers] == [(429, "busy")]


async def test_quiet_waits_for_every_admitted_request_and_no_longer() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _r: reply)]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        site.listener.stop_intake()
        loop = asyncio.get_running_loop()
        loop.call_later(1.5, reply.set_result, {"n": 1})
        began = loop.time()
        await site.listener.quiet()
        elapsed = loop.time() - began
        answers = await client.gone()

    assert elapsed == pytest.approx(1.5)
    assert [answer.status for answer in answers] == [200]
    assert answers[0].headers[b"connection"] == b"close"


@pytest.mark.parametrize("host", ["localhost:5300", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "node.internal"])
async def test_a_loopback_listener_answers_to_its_own_names(host: str) -> None:
    async with serving(options={"allowed_hosts": ("node.internal",)}) as site:
        client = site.connect()
        client.send(get().replace(b"localhost", host.encode()))
        answer = await client.answer()

    assert answer.status == 200


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1", "localhost.evil.example", "127.0.0.1.nip.io"])
async def test_a_loopback_listener_refuses_a_foreign_host_with_421(host: str) -> None:
    async with serving() as site:
        client = site.connect()
        client.send(get().replace(b"localhost", host.encode()) * 2)
        answers = await client.answers(2)

    assert [answer.status for answer in answers] == [421, 421]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post("/echo", b'{"text":"a"}', "Origin: http://evil.example"), 403),
        (post("/echo", b'{"text":"a"}', "Origin: null"), 403),
        (post("/echo", b'{"text":"a"}', "Origin: http://localhost:81"), 403),
        (post("/echo", b'{"text":"a"}', "Sec-Fetch-Site: cross-site"), 403),
        (post("/echo", b'{"text":"a"}', "Origin: http://localhost"), 200),
        (post("/echo", b'{"text":"a"}', "Origin: https://pages.example"), 200),
        (post("/echo", b'{"text":"a"}', "Sec-Fetch-Site: same-origin"), 200),
        (get("/hello", "Origin: http://evil.example"), 200),
        (get("/hello", "Origin: http://evil.example", "Accept: text/event-stream"), 403),
    ],
)
async def test_other_sites_may_not_change_anything_or_listen_to_events(request_bytes: bytes, status: int) -> None:
    async with serving(options={"allowed_origins": ("https://pages.example",)}) as site:
        client = site.connect()
        client.send(request_bytes)
        answer = await client.answer()

    assert answer.status == status


async def test_a_client_that_closes_its_side_still_gets_its_answer() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _r: reply)]) as site:
        client = site.connect()
        client.send(get("/it"))
        client.transport.write_eof()
        await settle()
        reply.set_result({"n": 1})
        answers = await client.gone()

    assert [answer.status for answer in answers] == [200]


async def test_a_client_that_closes_its_side_of_a_long_poll_has_gone() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([replace(route(lambda _r: reply), long_poll=True)]) as site:
        client = site.connect()
        client.send(get("/it"))
        client.transport.write_eof()
        answers = await client.gone()

    assert answers == []
    assert reply.cancelled()


async def test_as_a_supervised_child_it_announces_drains_and_closes() -> None:
    inventory = Inventory("test", LoopClock())
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    listener = Listener(inventory, ListenerOptions(host=None), [*ROUTES, route(lambda _r: reply)])
    spec = ChildSpec("listener", listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True)
    supervisor = Supervisor(inventory, [spec])
    await supervisor.start()
    client = RawClient()
    memory_pair(client, listener.connection())
    client.send(get("/it"))
    await settle()
    asyncio.get_running_loop().call_later(0.5, reply.set_result, {"n": 1})
    report = await supervisor.drain()
    answers = await client.gone()

    assert report.clean
    assert [answer.status for answer in answers] == [200]


async def test_a_closed_listener_frees_what_it_held_without_a_collection() -> None:
    """Full collections hardly ever come, and a listener that crashes now and then must not grow the process."""
    listener = Listener(Inventory("test", LoopClock()), ListenerOptions(host=None), ROUTES)
    gc.disable()
    try:
        await listener.start()
        held = ref(listener._core)
        await listener.close()
        await settle()

        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("per_ip", [0, 2, 3])
async def test_a_full_listener_names_the_limit_that_is_full(per_ip: int) -> None:
    """A cap for each address that is off, or no lower than the cap for all, has refused nobody."""
    options = {"max_conns": 2, "max_conns_per_ip": per_ip}
    async with serving([route(lambda _r: asyncio.get_running_loop().create_future())], options) as site:
        for _ in range(2):
            site.connect().send(get("/it"))
        await settle()
        answers = await site.connect().gone()

    assert [(answer.status, answer.json()["limit"]) for answer in answers] == [(429, "max_conns")]


def test_an_address_is_not_capped_when_its_setting_is_off() -> None:
    schema = node_schema(service_table("echo", port_offset=10, keys=()))
    settings = load(schema, Sources(sets=("echo.max_conns_per_ip=0", "echo.max_conns=100")))

    assert listener_options(listener_settings(settings, "echo")).per_ip == 0
