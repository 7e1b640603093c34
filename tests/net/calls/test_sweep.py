"""A caller cancelled before any step leaves no connection, no place in line and no task behind."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net.calls.pool import OriginPool
from penstock.testing.line import Weather
from penstock.testing.sweep import SweepFailure, sweep
from tests.net.calls.peers import (
    URL,
    Peer,
    answer,
    hangs_up,
    in_turn,
    make_client,
    pass_time,
    says,
    turns,
)

OK = b"HTTP/1.1 200 OK\r\n"
SLOW = Weather(latency_s=0.01, chunk_bytes=16, gap_s=0.001)


async def settle(client, peer) -> tuple[int, int]:
    """Show that the client still works within its bounds, then close it and count what is left."""
    peer.script = says(answer())
    for _ in range(2):
        assert (await client.request("GET", URL)).status == 200
    await client.close()
    await pass_time(1)
    return client.connections, len(peer.open)


def nothing_left(left: tuple[int, int]) -> bool:
    return left == (0, 0)


def test_request_cancelled_anywhere_leaves_nothing() -> None:
    async def scenario(run):
        peer = Peer(in_turn(hangs_up, says(answer(b"x" * 100))), dial_s=0.1, back=SLOW)
        client = make_client(peer, connections_max=1)
        run.start(client.request("GET", URL))
        await run.ended()
        return await settle(client, peer)

    assert sweep(scenario, check=nothing_left) > 10


def test_upload_cancelled_anywhere_leaves_nothing() -> None:
    async def source():
        for _ in range(3):
            await pass_time(0.01)
            yield b"x" * 50_000

    async def scenario(run):
        peer = Peer(there=Weather(latency_s=0.01, window_bytes=10_000))
        client = make_client(peer, connections_max=1)
        body = source()
        run.start(client.request("POST", URL, body=body))
        await run.ended()
        await body.aclose()
        return await settle(client, peer)

    assert sweep(scenario, check=nothing_left) > 10


def test_stream_cancelled_anywhere_leaves_nothing() -> None:
    async def read(client):
        async with client.stream("GET", URL) as got:
            return [piece async for piece in got]

    async def scenario(run):
        peer = Peer(says(OK, b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n" * 5, b"0\r\n\r\n"), back=SLOW)
        client = make_client(peer, connections_max=1)
        run.start(read(client))
        await run.ended()
        return await settle(client, peer)

    assert sweep(scenario, check=nothing_left) > 10


async def three_callers_one_place(run):
    """The target stands in line between two others."""
    peer = Peer(back=Weather(latency_s=0.01), dial_s=0.01)
    client = make_client(peer, connections_max=1)
    loop = asyncio.get_running_loop()
    before = loop.create_task(client.request("GET", URL))
    await turns()
    run.start(client.request("GET", URL))
    await turns(1)
    after = loop.create_task(client.request("GET", URL))
    await run.ended()
    assert [(await call).status for call in (before, after)] == [200, 200]
    return await settle(client, peer)


def test_waiter_cancelled_anywhere_starves_nobody() -> None:
    assert sweep(three_callers_one_place, check=nothing_left) > 10


@pytest.mark.parametrize(
    ("owner", "name"), [(OriginPool, "_give_up"), (OriginPool, "_free_place"), (OriginPool, "release")]
)
def test_sweep_sees_a_pool_that_forgets_to_pass_on(owner, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, lambda *_: None)

    with pytest.raises(SweepFailure):
        sweep(three_callers_one_place, check=nothing_left)


def test_close_cancelled_anywhere_still_closes() -> None:
    async def scenario(run):
        peer = Peer(says(OK, b"Content-Length: 9\r\n\r\n"))
        client = make_client(peer, connections_max=2)
        loop = asyncio.get_running_loop()
        calls = [loop.create_task(client.request("GET", URL)) for _ in range(3)]
        await turns()
        run.start(client.close())
        await run.ended()
        if not client.is_closed:
            await client.close()
        await asyncio.wait(calls)
        await turns()
        assert all(call.exception() for call in calls)
        return client.connections, len(peer.open)

    assert sweep(scenario, check=nothing_left) >= 1
