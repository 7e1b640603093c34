"""The proxy on real sockets: what memory cannot show is resets, kernel buffers and resident memory."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.inventory import Inventory
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.services.omnigate.proxy.routes import Proxies, ProxyOptions
from tests.net.server.listener_kit import BOTH_LOOPS, get, post
from tests.services.omnigate.proxy.kit import (
    RawUpstream,
    Script,
    UpstreamConnection,
    hangs_up,
    in_turn,
    ok,
    says,
)
from tests.services.omnigate.proxy.test_lies import LIES

MIB = 1 << 20
PIECE = bytes(64 << 10)


@asynccontextmanager
async def running(script: Script, **options: Any) -> AsyncIterator[tuple[int, RawUpstream, Proxies]]:
    """Run upstream and gateway on loopback; yield the gateway's port."""
    loop, upstream = asyncio.get_running_loop(), RawUpstream(script)
    server = await loop.create_server(lambda: UpstreamConnection(upstream), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    inventory = Inventory("omnigate")
    proxies = Proxies(inventory, [ProxyRoute(prefix=("api",), upstreams=(url,))], ProxyOptions(**options))
    listener = Listener(inventory, ListenerOptions(port=0, half_close=False), list(proxies.routes()))
    await listener.start()
    try:
        yield listener.port, upstream, proxies
    finally:
        await listener.close()
        await proxies.close()
        for connection in upstream.connections:
            connection.transport.abort()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)


async def asked(port: int, data: bytes) -> bytes:
    """Send bytes and read to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


def last(data: bytes) -> bytes:
    return data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


@BOTH_LOOPS
async def test_requests_go_through_and_connections_are_kept(loop_name: str) -> None:
    async with running(says(ok(b"hello"))) as (port, upstream, _):
        for _ in range(5):
            assert (await asked(port, last(get("/api/x")))).endswith(b"\r\n\r\nhello")

        assert len(upstream.connections) == 1


@BOTH_LOOPS
async def test_two_clients_that_say_the_same_are_told_apart(loop_name: str) -> None:
    async with running(says(ok())) as (port, upstream, _):
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            writer.write(last(get("/api/x")))
            await reader.read()
            writer.close()

        said = [raw.partition(b"Forwarded: for=")[2].split(b";")[0] for raw in upstream.requests]
        assert said == [b"127.0.0.1", b"127.0.0.2", b"127.0.0.1"]


@BOTH_LOOPS
async def test_a_reset_in_every_state_of_an_answer_is_seen(loop_name: str) -> None:
    whole = ok(b"b" * 300_000)
    for at in (0, 1, 10, 40, 100, 70_000, 200_000):

        def script(connection: UpstreamConnection, raw: bytes, at: int = at) -> None:
            connection.next_request()
            connection.say(whole[:at])
            asyncio.get_running_loop().call_later(0.05, connection.transport.abort)

        async with running(script) as (port, _, _):
            data = await asked(port, last(post("/api/x", b"once")))

            if data.startswith(b"HTTP/1.1 502"):
                assert at < 1000
            else:
                assert data.startswith(b"HTTP/1.1 200 OK\r\n")
                assert len(data.partition(b"\r\n\r\n")[2]) < 300_000


@BOTH_LOOPS
async def test_an_open_ended_answer_that_is_cut_ends_in_a_reset(loop_name: str) -> None:
    def script(connection: UpstreamConnection, raw: bytes) -> None:
        connection.next_request()
        connection.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")

    async with running(script) as (port, upstream, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"first")  # cut before this, the answer would be a 502
        upstream.connections[0].transport.abort()

        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


@BOTH_LOOPS
async def test_every_lie_is_502_over_sockets_too(loop_name: str) -> None:
    script, never_open = in_turn(*(says(lie) for lie in LIES.values())), BreakerPolicy(error_rate=0.0)
    async with running(script, breaker=never_open) as (port, upstream, _):
        for name in LIES:
            data = await asked(port, last(post("/api/x", b"once")))

            assert data.startswith(b"HTTP/1.1 502 "), name
        assert len(upstream.requests) == len(LIES)


@BOTH_LOOPS
async def test_a_kept_connection_the_upstream_closed_is_not_noticed(loop_name: str) -> None:
    async with running(in_turn(says(ok(b"1")), hangs_up, says(ok(b"2")))) as (port, _, _):
        first, second = await asked(port, last(get("/api/x"))), await asked(port, last(get("/api/x")))

        assert (first[-1:], second[-1:]) == (b"1", b"2")


class Fountain:
    """An answer of 64 MiB, written as fast as the proxy takes it."""

    def __init__(self) -> None:
        self.left = 64 * MIB

    def __call__(self, connection: UpstreamConnection, raw: bytes) -> None:
        connection.next_request()
        connection.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.left)
        connection.resume_writing = lambda: self.feed(connection)  # type: ignore[method-assign]
        self.feed(connection)

    def feed(self, connection: UpstreamConnection) -> None:
        connection.paused = False
        while self.left and not connection.paused:
            self.left -= len(PIECE)
            connection.say(PIECE)


@BOTH_LOOPS
async def test_a_large_answer_to_a_slow_client_costs_little_memory(loop_name: str) -> None:
    fountain = Fountain()
    async with running(fountain) as (port, _, _):
        before_kib = _rss_kib()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 << 10)
        writer.write(get("/api/x"))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        await _stall(fountain)
        held = 64 * MIB - fountain.left
        writer.transport.resume_reading()
        taken = 0
        while taken < 64 * MIB:
            taken += len(await reader.read(256 << 10))
        grown_kib = _rss_kib() - before_kib
        writer.close()

        # Mostly the kernel's own buffers, of four sockets on loopback.
        assert held < 32 * MIB
        assert grown_kib < 16 << 10


async def _stall(fountain: Fountain) -> None:
    """Wait until nothing more is taken."""
    seen = -1
    while fountain.left != seen:
        seen = fountain.left
        await asyncio.sleep(0.1)


def _rss_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 10


@BOTH_LOOPS
async def test_a_client_that_goes_cuts_the_upstream(loop_name: str) -> None:
    asked_for, gone = asyncio.Event(), asyncio.Event()

    def silent_until_gone(connection: UpstreamConnection, raw: bytes) -> None:
        connection.next_request()
        asked_for.set()
        lost = lambda _exc: (setattr(connection, "ended", True), gone.set())  # noqa: E731
        connection.connection_lost = lost  # type: ignore[method-assign]

    async with running(silent_until_gone) as (port, upstream, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/api/x"))
        await asked_for.wait()
        writer.close()
        await gone.wait()

        assert upstream.open == 0
