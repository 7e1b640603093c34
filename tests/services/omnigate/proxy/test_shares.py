"""Slow clients and an upstream's connections: so many each, so many together, and a quick one always finds one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import ByteBudget
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.net.server.pausing import QUIET_S
from penstock.services.omnigate.gate.rules import proxy_rules
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.services.omnigate.proxy.routes import Proxies, ProxyDeps, ProxyOptions
from penstock.services.omnigate.proxy.shares import TenantShares
from penstock.testing.transport import memory_pair
from tests.net.server.listener_kit import (
    RawClient,
    get,
    post,
    settle,
)
from tests.services.omnigate.gate.kit import GateSite, gated
from tests.services.omnigate.proxy.kit import (
    RawUpstream,
    UpstreamConnection,
    gateway,
    ok,
    says,
    silent,
)
from tests.services.omnigate.proxy.test_streams import Collected

CONNECTIONS = 16
EACH, ALL = 2, 8
PIECE = bytes(64 << 10)


class Taker:
    """Takes a stream, or lets it wait."""

    def __init__(self, *, is_parked: bool) -> None:
        self.is_parked = is_parked


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=80))
def test_no_tenant_and_not_all_together_have_more_uploads_than_their_share(steps: list[tuple[int, bool]]) -> None:
    shares, held = TenantShares(CONNECTIONS), dict.fromkeys(range(6), 0)
    for tenant, begins in steps:
        if begins:
            may = shares.begin_upload(tenant)
            assert may == (held[tenant] < EACH and sum(held.values()) < ALL)
            held[tenant] += may
        elif held[tenant]:
            shares.end_upload(tenant)
            held[tenant] -= 1

    assert shares.uploading == sum(held.values()) <= ALL
    assert shares._uploads == {tenant: count for tenant, count in held.items() if count}


def test_only_streams_that_wait_for_their_client_count_and_the_last_one_is_forgotten() -> None:
    shares = TenantShares(4)
    takers = [Taker(is_parked=False) for _ in range(3)]
    for taker in takers:
        shares.begin_stream("ada", taker)
    assert shares.may_ask("ada")
    takers[0].is_parked = takers[1].is_parked = True
    assert not shares.may_ask("ada")
    assert shares.may_ask("bob")
    shares.end_stream("ada", takers[0])
    assert shares.may_ask("ada")
    for taker in takers[1:]:
        shares.end_stream("ada", taker)

    assert shares._streams == {}


def test_even_one_connection_is_shared() -> None:
    shares = TenantShares(1)

    assert (shares.uploads_max, shares.uploads_max_each, shares.stalled_max) == (1, 1, 1)


async def test_three_hundred_slow_uploads_of_one_address_hold_a_share_of_the_connections_and_delay_nobody() -> None:
    upstream = Collected()

    def script(connection: UpstreamConnection, raw: bytes) -> None:
        says(ok())(connection, raw) if raw.startswith(b"GET") else upstream(connection, raw)

    room = {"max_conns_per_ip": 400}
    async with gateway(script, options={"calls_max": CONNECTIONS}, listener=room) as gate:
        slow = [gate.connect() for _ in range(300)]
        for client in slow:
            client.send(post("/api/x", bytes(10))[:-1])
        await settle()
        began = asyncio.get_running_loop().time()
        held = gate.upstreams["up0.test"].open
        answer = await gate.ask(get("/api/light"))
        took_s = asyncio.get_running_loop().time() - began
        for client in slow:
            client.send(b"\0")
        answers = [await client.answer() for client in slow]

        assert held == EACH
        assert (answer.status, took_s) == (200, 0.0)
        assert {(each.status, each.body) for each in answers} == {(200, b"10")}
        assert len(upstream.bodies) == 300
        assert gate.proxies.proxies[0].shares.uploading == 0


async def test_what_was_received_first_arrives_whole_with_its_length_however_it_was_sent() -> None:
    upstream = Collected()
    async with gateway(upstream, options={"calls_max": 1}) as gate:
        first = gate.connect()
        first.send(post("/api/x", b"12345")[:-1])
        await settle()
        second = gate.connect()
        second.send(b"POST /api/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await settle()
        second.send(b"6\r\n world\r\n0\r\n\r\n")
        await settle()
        first.send(b"5")

        assert (await first.answer()).body == b"5"
        assert (await second.answer()).body == b"11"
        assert b"Content-Length: 11" in upstream.heads[1]
        assert upstream.bodies == [b"12345", b"hello world"]


async def test_bytes_received_first_are_the_nodes_and_are_given_back_whatever_ends_them() -> None:
    budget = ByteBudget(1 << 20)
    share = budget.share()
    async with gateway(silent, options={"calls_max": 1}, around={"budget": share}) as gate:
        first = gate.connect()
        first.send(post("/api/x", bytes(10))[:-1])
        await settle()
        leaver, dawdler = gate.connect(), gate.connect()
        for client in (leaver, dawdler):
            client.send(post("/api/x", bytes(1000))[:-1])
        await settle()
        held = share.in_use
        leaver.transport.abort()
        await settle()
        left = share.in_use
        too_much = await gate.ask(post("/api/x", bytes(900_000)))
        late = await dawdler.answer()
        after = share.in_use

    assert (held, left) == (2 * 999, 999)
    assert (too_much.status, too_much.json()["limit"]) == (429, "node_bytes")
    assert (late.status, after, budget.in_use) == (504, 0, 0)


async def test_an_upload_that_is_refused_or_cut_gives_its_share_back() -> None:
    async with gateway(silent, options={"calls_max": 8}) as gate:
        shares = gate.proxies.proxies[0].shares
        gate.upstreams["up0.test"].refuses = ConnectionRefusedError(111, "refused")
        for _ in range(5):
            client = gate.connect()
            client.send(post("/api/x", bytes(10))[:-1])
            assert (await client.answer()).status == 503
        refused = shares.uploading
        gate.upstreams["up0.test"].refuses = None
        client = gate.connect()
        client.send(post("/api/x", bytes(10))[:-1])
        await settle()
        running = shares.uploading
        client.transport.abort()
        await settle()

        assert (refused, running, shares.uploading) == (0, 1, 0)


@asynccontextmanager
async def proxied(upstream: RawUpstream, **options: Any) -> AsyncIterator[tuple[GateSite, Proxies]]:
    """Run a gate in front of a route to this upstream."""

    async def dial(_origin: HttpOrigin, connection: ClientConnection) -> None:
        memory_pair(connection, UpstreamConnection(upstream))

    route = ProxyRoute(prefix=("api",), upstreams=("http://up.test",))
    inventory = Inventory("proxies", LoopClock())
    proxies = Proxies(inventory, [route], ProxyOptions(**options), ProxyDeps(dial=dial))
    try:
        async with gated(more=proxy_rules(proxies.routes())) as site:
            yield site, proxies
    finally:
        await proxies.close()


def endless(connection: UpstreamConnection, raw: bytes) -> None:
    """Answer with a body that never ends, or shortly."""
    connection.next_request()
    if raw.startswith(b"GET /api/short"):
        connection.say(ok())
    else:
        connection.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", PIECE * 8)


async def stall(site: GateSite, field: str) -> RawClient:
    """Ask for a long answer and do not read it."""
    client, _, transport = site.join()
    transport.pause_reading()
    client.send(get("/api/long", field))
    await settle()
    return client


async def test_who_does_not_read_half_of_all_connections_gets_no_further_one_and_the_others_do() -> None:
    async with proxied(RawUpstream(endless), calls_max=8) as (site, proxies):
        ada, bob = await site.known(tenant="ada"), await site.known(tenant="bob")
        stalled = [await stall(site, ada) for _ in range(4)]
        await asyncio.sleep(2 * QUIET_S)
        refused = await (await site.ask("/api/short", ada)).answer()
        served = await (await site.ask("/api/short", bob)).answer()
        stalled[0].transport.abort()
        await settle()
        again = await (await site.ask("/api/short", ada)).answer()
        for client in stalled:
            client.transport.abort()
        await settle()

        assert (refused.status, refused.json()["limit"]) == (429, "proxy.stalled")
        assert (served.status, again.status) == (200, 200)
        assert proxies.proxies[0].shares._streams == {}
