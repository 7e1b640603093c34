"""One connection's turn: bounded in requests and in time, and over with the request that ends the connection."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from penstock.kernel.inventory import Inventory
from penstock.net.message import Request
from penstock.net.server.listener import Listener, ListenerOptions
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
from tests.net.server.test_listener_streams import count_body

CLOSE = "Connection: close"
HTTP_1_0 = b"GET /it HTTP/1.0\r\nHost: localhost\r\n\r\n"
EMPTY_ZSTD = b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * 100_000 + b"\1\0\0"


class Spent:
    """A clock that handlers move, as work does."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        """Return the time spent."""
        return self.now_s

    def wall(self) -> float:
        """Return a date."""
        return 1_700_000_000.0 + self.now_s


@pytest.mark.parametrize(("cost_s", "most"), [(0.0, 32), (0.0003, 4), (0.003, 1)])
async def test_a_turn_ends_after_a_millisecond_however_few_requests_that_were(cost_s: float, most: int) -> None:
    clock, turns = Spent(), [0]

    def costly(_request: Request) -> dict[str, int]:
        clock.now_s += cost_s
        turns[-1] += 1
        return {}

    listener = Listener(Inventory("test", clock), ListenerOptions(host=None), [route(costly)])
    await listener.start()
    client = RawClient()
    memory_pair(client, listener.connection())
    client.send(get("/it") * 64)
    while sum(turns) < 64:
        turns.append(0)
        await asyncio.sleep(0)
    await settle()
    client.transport.abort()
    await listener.close()
    await settle()

    assert max(turns) == most


@pytest.mark.parametrize(
    "request_bytes", [get("/it", CLOSE), HTTP_1_0, post("/post", b"abc", CLOSE), post("/post", b"", CLOSE)]
)
@pytest.mark.parametrize("late", [False, True])
async def test_after_a_request_that_ends_the_connection_nothing_is_read(request_bytes: bytes, late: bool) -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    handled = 0

    def wait(_request: Request) -> object:
        nonlocal handled
        handled += 1
        return reply if late else {"n": 1}

    async with serving([route(wait), route(wait, "POST", "/post")]) as site:
        client = site.connect()
        client.send(request_bytes * 3 + b"what follows is no request\r\n\r\n")
        await settle()
        client.send(request_bytes)
        await settle()
        if late:
            reply.set_result({"n": 1})
        answers = await client.gone()

    assert [answer.status for answer in answers] == [200]
    assert answers[0].headers[b"connection"] == b"close"
    assert (handled, client.lost) == (1, None)


async def test_a_closing_request_whose_body_arrives_late_is_the_last_one_too() -> None:
    request = post("/echo", b'{"text":"a"}', CLOSE)
    async with serving() as site:
        client = site.connect()
        client.send(request[:-3])
        await settle()
        client.send(request[-3:] + request * 2)
        answers = await client.gone()

    assert [answer.status for answer in answers] == [200]


async def test_a_client_that_floods_behind_its_last_request_is_not_read_forever() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _request: reply)]) as site:
        client, connection, transport = site.join()
        client.send(get("/it", CLOSE))
        for _ in range(300):
            client.send(b"x" * 100_000)
            await asyncio.sleep(0)
        await settle(500)
        waiting = transport.get_write_buffer_size()
        client.transport.abort()
        await settle()

    assert connection.inbox.discarded_bytes < 17 << 20
    assert waiting > 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("encoding", ["zstd", "deflate"])
async def test_a_body_that_inflates_to_nothing_leaves_turns_to_others(streamed: bool, encoding: str) -> None:
    """Counts turns: another connection is answered many times while this body is worked on."""
    body = EMPTY_ZSTD
    if encoding == "deflate":
        body = b"\x78\x01" + b"\0\0\0\xff\xff" * 180_000 + b"\1\0\0\xff\xff" + zlib.adler32(b"").to_bytes(4, "big")
    path = "/streamed" if streamed else "/whole"
    routes = [
        *ROUTES,
        route(count_body, "POST", "/streamed", stream_body=True),
        route(lambda request: {"bytes": len(request.body)}, "POST", "/whole"),
    ]
    async with serving(routes) as site:
        client, other = site.connect(), site.connect()
        client.send(post(path, body, f"Content-Encoding: {encoding}"))
        await settle(1)
        meanwhile = 0
        while not client.data:
            other.send(get())
            await other.answer()
            meanwhile += 1
        answer = await client.answer()

    assert answer.json()["bytes"] == 0
    assert meanwhile >= (100 if encoding == "zstd" else 2)


async def test_a_chunk_no_body_may_have_is_refused_as_soon_as_it_is_announced() -> None:
    loop = asyncio.get_running_loop()
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as site:
        began = loop.time()
        clients = [site.connect(), site.connect()]
        for client, size in zip(clients, (b"ffffffffffffffff", b"100001"), strict=True):
            client.send(head + b"3\r\nabc\r\n" + size + b"\r\n")
        answers = [await client.answers(1) for client in clients]
        elapsed = loop.time() - began

    assert [[(one.status, one.json()["limit"]) for one in got] for got in answers] == [[(413, "body")]] * 2
    assert elapsed < 0.1
