"""Streaming both ways: bounded, at the slower side's pace, and a cut is seen."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from dataclasses import replace

from penstock.kernel.errors import Forbidden
from penstock.net.message import Request, Response, StreamResponse
from penstock.net.server.body import HELD_BYTES_MAX
from tests.net.server.listener_kit import (
    ROUTES,
    get,
    post,
    route,
    serving,
    settle,
)

MIB = 1 << 20


async def count_body(request: Request) -> dict[str, int]:
    """Read a body as it comes."""
    sizes = [len(piece) async for piece in request.stream()]
    return {"bytes": sum(sizes), "largest": max(sizes, default=0)}


async def test_a_streamed_body_arrives_whole_in_pieces_of_at_most_64_kib() -> None:
    async with serving([route(count_body, "POST", stream_body=True, body_bytes_max=8 * MIB)]) as site:
        client = site.connect()
        client.send(post("/it", os.urandom(3 * MIB)) + post("/it", b"abc"))
        first, second = await client.answers(2)

    assert first.json()["bytes"] == 3 * MIB
    assert first.json()["largest"] <= 64 * 1024
    assert second.json()["bytes"] == 3


async def test_a_handler_that_is_behind_holds_the_client_back() -> None:
    go = asyncio.Event()

    async def late(request: Request) -> dict[str, int]:
        await go.wait()
        return await count_body(request)

    async with serving([route(late, "POST", stream_body=True, body_bytes_max=8 * MIB)]) as site:
        client, connection, _transport = site.join()
        client.send(post("/it", b"x" * (4 * MIB)))
        await settle(300)
        held = connection.inbox.intake._held_bytes  # type: ignore[union-attr]
        go.set()
        answer = await client.answer()

    assert held == HELD_BYTES_MAX
    assert answer.json()["bytes"] == 4 * MIB


async def test_a_streamed_body_over_its_cap_is_413_and_closed() -> None:
    async with serving([route(count_body, "POST", stream_body=True, body_bytes_max=1000)]) as site:
        client = site.connect()
        client.send(b"POST /it HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000)
        answers = await client.gone()

    assert [answer.status for answer in answers] == [413]


async def test_a_streamed_body_is_inflated_as_it_is_read() -> None:
    data = os.urandom(200_000)
    async with serving([route(count_body, "POST", stream_body=True)]) as site:
        client = site.connect()
        client.send(post("/it", gzip.compress(data), "Content-Encoding: gzip"))
        whole = await client.answer()
        client.send(post("/it", gzip.compress(data)[:-10], "Content-Encoding: gzip"))
        cut = await client.answer()

    assert whole.json()["bytes"] == len(data)
    assert cut.status == 400


async def test_a_small_unread_body_is_discarded_and_a_large_one_ends_the_connection() -> None:
    async def refuse(_request: Request) -> Response:
        await asyncio.sleep(0)
        raise Forbidden

    routes = [*ROUTES, route(refuse, "POST", stream_body=True, body_bytes_max=8 * MIB)]
    async with serving(routes) as site:
        kept, closed = site.connect(), site.connect()
        kept.send(post("/it", b"x" * 1000) + get())
        answers = await kept.answers(2)
        closed.send(post("/it", b"x" * (2 * MIB)) + get())
        last = await closed.gone()

    assert [answer.status for answer in answers] == [403, 200]
    assert [answer.status for answer in last] == [403]
    assert last[0].headers[b"connection"] == b"close"


async def test_a_client_that_leaves_in_the_middle_of_its_body_ends_the_handler() -> None:
    ended = asyncio.Event()

    async def reading(request: Request) -> None:
        try:
            async for _piece in request.stream():
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with serving([route(reading, "POST", stream_body=True)]) as site:
        client = site.connect()
        client.send(post("/it", b"x" * 1000)[:-500])
        await settle()
        client.transport.abort()
        await settle()
        inflight = site.listener.inflight

    assert ended.is_set()
    assert inflight == 0


async def numbers(count: int, size: int = 10) -> AsyncIterator[bytes]:
    """Make pieces."""
    for number in range(count):
        await asyncio.sleep(0)
        yield b"%010d" % number * (size // 10)


async def test_a_streamed_answer_is_chunked_or_has_its_length_and_the_connection_goes_on() -> None:
    routes = [
        *ROUTES,
        route(lambda _r: StreamResponse(200, numbers(3)), path="/chunked"),
        route(lambda _r: StreamResponse(200, numbers(3), length=30), path="/length"),
    ]
    async with serving(routes) as site:
        client = site.connect()
        client.send(get("/chunked") + get("/length") + get())
        chunked, length, after = await client.answers(3)

    assert chunked.headers[b"transfer-encoding"] == b"chunked"
    assert chunked.body == length.body == b"000000000000000000010000000002"
    assert length.headers[b"content-length"] == b"30"
    assert after.status == 200


async def test_a_stream_that_fails_or_is_short_ends_the_connection_visibly() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        await asyncio.sleep(0)
        raise ValueError("bug")

    routes = [
        route(lambda _r: StreamResponse(200, broken()), path="/broken"),
        route(lambda _r: StreamResponse(200, numbers(2), length=30), path="/short"),
    ]
    async with serving(routes) as site:
        broken_client, short_client = site.connect(), site.connect()
        broken_client.send(get("/broken"))
        short_client.send(get("/short"))
        whole = await broken_client.gone() + await short_client.gone()
        inflight = site.listener.inflight

    assert whole == []
    assert inflight == 0


async def test_a_client_that_reads_slowly_holds_the_stream_back_and_closes_its_iterator() -> None:
    made = 0
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        nonlocal made
        try:
            while True:
                made += 1
                await asyncio.sleep(0)
                yield b"x" * 16384
        finally:
            closed.set()

    async with serving([route(lambda _r: StreamResponse(200, endless()))]) as site:
        client, _connection, transport = site.join()
        transport.pause_reading()
        client.send(get("/it"))
        await settle(500)
        before = made
        await asyncio.sleep(6.0)
        await settle()
        timeouts = site.count("io_timeouts_total", op="write")
        transport.resume_reading()

    assert before * 16384 < 2 * MIB
    assert timeouts == 1
    assert closed.is_set()


class Held:
    """An iterator that holds something open until it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def __aiter__(self) -> Held:
        """Be its own iterator."""
        return self

    async def __anext__(self) -> bytes:
        """Give the same piece forever."""
        await asyncio.sleep(0)
        return b"x"

    async def aclose(self) -> None:
        """Let go."""
        await asyncio.sleep(0)
        self.closed = True


async def test_a_stream_whose_turn_never_came_is_closed_when_the_client_leaves() -> None:
    held = Held()
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    routes = [route(lambda _r: reply, path="/first"), route(lambda _r: StreamResponse(200, held), path="/second")]
    async with serving(routes) as site:
        client = site.connect()
        client.send(get("/first") + get("/second"))
        await settle()
        client.transport.abort()
        await settle()
        inflight = site.listener.inflight

    assert held.closed
    assert inflight == 0


async def test_a_stream_that_finds_no_task_is_refused_in_its_place_and_its_iterator_closed() -> None:
    never, waits, held = asyncio.Event(), Held(), Held()

    async def waiting(_request: Request) -> None:
        await never.wait()

    routes = [
        *ROUTES,
        route(waiting, path="/waiting"),
        route(lambda _r: StreamResponse(200, held), path="/stream"),
        route(lambda _r: StreamResponse(200, waits), path="/behind"),
    ]
    async with serving(routes, options={"tasks_max": 2}) as site:
        busy, other, client = site.connect(), site.connect(), site.connect()
        busy.send(get("/waiting"))
        other.send(get("/waiting") + get("/behind"))
        client.send(get("/stream") + get())
        refused, after = await client.answers(2)
        other.transport.abort()
        await settle()
        counted = site.count("http_requests_total", method="GET", route="/stream", status="429")
        answered = site.count("request_latency_seconds", route="/stream")
        inflight = site.listener.inflight

    assert (refused.status, refused.json()["code"], after.status) == (429, "busy", 200)
    assert (counted, answered) == (1, 1)
    assert held.closed, "the refused one"
    assert waits.closed, "the one whose turn never came"
    assert inflight == 1, "the one that still waits"


async def test_every_unsent_stream_is_closed_also_those_of_connections_that_a_reload_made_room_for() -> None:
    held: list[Held] = []

    def streams(_request: Request) -> StreamResponse:
        held.append(Held())
        return StreamResponse(200, held[-1])

    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    routes = [route(lambda _r: reply, path="/first"), route(streams, path="/behind")]
    async with serving(routes, options={"max_conns": 1, "max_conns_per_ip": 9}) as site:
        await site.listener.reconfigure(replace(site.listener.options, max_conns=3))
        clients = [site.connect() for _ in range(3)]
        for client in clients:
            client.send(get("/first") + 7 * get("/behind"))
        await settle(100)
        for client in clients:
            client.transport.abort()
        await settle(100)

    assert [each.closed for each in held] == [True] * 21


async def test_a_stream_that_does_not_close_is_given_up_after_a_second() -> None:
    class Stubborn(Held):
        async def aclose(self) -> None:
            await asyncio.sleep(3600)

    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    routes = [route(lambda _r: reply, path="/first"), route(lambda _r: StreamResponse(200, Stubborn()), path="/second")]
    loop = asyncio.get_running_loop()
    async with serving(routes) as site:
        client = site.connect()
        client.send(get("/first") + get("/second"))
        await settle()
        client.transport.abort()
        await settle()
        began = loop.time()

    assert loop.time() - began <= 1.0


async def test_head_of_a_stream_sends_no_body_and_closes_the_iterator() -> None:
    async with serving([*ROUTES, route(lambda _r: StreamResponse(200, numbers(3), length=30))]) as site:
        client = site.connect()
        client.send(b"HEAD /it HTTP/1.1\r\nHost: localhost\r\n\r\n" + get())
        bare, after = await client.answers(2, heads_only=[0])

    assert bare.headers[b"content-length"] == b"30"
    assert after.status == 200


async def test_http_1_0_gets_a_stream_that_ends_with_the_connection() -> None:
    async with serving([route(lambda _r: StreamResponse(200, numbers(3)))]) as site:
        client = site.connect()
        client.send(b"GET /it HTTP/1.0\r\n\r\n")
        await client.gone()

    assert client.data.endswith(b"\r\n\r\n000000000000000000010000000002")
    assert b"chunked" not in client.data
