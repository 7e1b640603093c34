"""The client goes, or the upstream does, at every step of a proxied call: nothing stays behind, whatever the step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.net.server.listener_kit import (
    RawClient,
    get,
    post,
    settle,
)
from tests.services.omnigate.proxy.kit import (
    Gateway,
    UpstreamConnection,
    gateway,
    in_turn,
    ok,
    says,
)

LONG = b"z" * 300_000
STEPS = 40


def echo_at_the_end(connection: UpstreamConnection, raw: bytes) -> None:
    """Answer a body of 200,000 bytes once it is here."""
    if raw.endswith(b"e" * 200_000):
        connection.next_request()
        connection.say(ok())


SCENES: dict[str, tuple[Callable[[UpstreamConnection, bytes], None], bytes]] = {
    "short": (says(ok()), get("/api/x")),
    "streamed answer": (says(ok(LONG)), get("/api/x")),
    "open-ended answer": (says(b"HTTP/1.1 200 OK\r\n\r\n", LONG, close=True), get("/api/x")),
    "uploaded": (echo_at_the_end, post("/api/x", b"e" * 200_000)),
    "retried": (in_turn(says(ok(b"", status="503 Down")), says(ok())), get("/api/x")),
    "pipelined": (says(ok(LONG)), get("/api/x") * 3),
}


async def steps(count: int) -> None:
    """Let so many turns of the loop pass, and now and then a little time."""
    for number in range(count):
        await asyncio.sleep(0.04 if number % 8 == 7 else 0)


async def check_nothing_is_left(gate: Gateway) -> None:
    """Every request is over, every task gone, every connection idle or closed; and the next request is served."""
    await asyncio.sleep(10.0)
    await settle()
    (upstream,) = gate.proxies.proxies[0].upstreams.all
    assert gate.site.listener.inflight == 0
    assert len(gate.proxies.scope) == 0
    assert upstream.pool.quiet
    assert upstream.pool.connections == gate.upstreams["up0.test"].open


@pytest.mark.parametrize("scene", SCENES)
async def test_a_client_that_goes_at_any_step_leaves_nothing_behind(scene: str) -> None:
    script, request = SCENES[scene]
    for step in range(STEPS):
        async with gateway(script) as gate:
            gate.upstreams["up0.test"].dial_s = 0.01
            client = gate.connect()
            client.send(request)
            await steps(step)
            client.transport.abort()

            await check_nothing_is_left(gate)


@pytest.mark.parametrize("scene", SCENES)
async def test_an_upstream_that_dies_at_any_step_leaves_nothing_behind(scene: str) -> None:
    script, request = SCENES[scene]
    for step in range(STEPS):
        async with gateway(script, retry=scene == "retried") as gate:
            client = gate.connect()
            client.send(request)
            await steps(step)
            for connection in gate.upstreams["up0.test"].connections:
                connection.transport.abort()

            await check_nothing_is_left(gate)
            assert _honest(client), client.data[:200]


def _honest(client: RawClient) -> bool:
    """Tell whether the client got whole answers, refusals, or an answer it can see is cut."""
    data = client.data
    if not data.startswith(b"HTTP/1.1 200"):
        return True
    head, _, body = data.partition(b"\r\n\r\n")
    if b"chunked" in head:
        return client.ended or body.endswith(b"0\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
    return client.ended or len(body) >= length


async def test_a_gateway_that_closes_at_any_step_closes_everything() -> None:
    for script, request in SCENES.values():
        for step in range(0, STEPS, 3):
            async with gateway(script) as gate:
                client = gate.connect()
                client.send(request)
                await steps(step)
                await gate.site.listener.close()
                await gate.proxies.close()
                await settle()

                assert gate.upstreams["up0.test"].open == 0
                assert len(gate.proxies.scope) == 0
