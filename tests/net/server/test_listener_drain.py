"""Draining while bodies arrive: an admitted request is waited for, answered, and told when it was cut."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest

from penstock.kernel.lifecycle import until_drain
from penstock.net.message import Request, StreamResponse
from tests.net.server.listener_kit import (
    BOTH_LOOPS,
    Site,
    get,
    post,
    route,
    serving,
    settle,
)
from tests.net.server.test_listener_streams import count_body

BODY = b'{"text":"hi"}'


@pytest.mark.parametrize("kind", ["length", "chunked", "encoded", "streamed"])
async def test_quiet_waits_for_a_body_that_is_still_arriving_and_its_request_is_answered(kind: str) -> None:
    body = zlib.compress(BODY) if kind == "encoded" else BODY
    request = post("/it", body, *(["Content-Encoding: deflate"] if kind == "encoded" else []))
    if kind == "chunked":
        head = b"POST /it HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        request = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    handler = count_body if kind == "streamed" else lambda request: {"bytes": len(request.body)}
    async with serving([route(handler, "POST", stream_body=kind == "streamed")]) as site:
        client, loop = site.connect(), asyncio.get_running_loop()
        client.send(request[:-5])
        await settle()
        admitted = site.listener.inflight
        site.listener.stop_intake()
        loop.call_later(1.5, client.send, request[-5:])
        began = loop.time()
        await site.listener.quiet()
        elapsed = loop.time() - began
        answers = await client.gone()
        left = site.listener.inflight

    assert (admitted, left) == (1, 0)
    assert elapsed == pytest.approx(1.5)
    assert [(answer.status, answer.json()["bytes"]) for answer in answers] == [(200, len(BODY))]
    assert answers[0].headers[b"connection"] == b"close"


@pytest.mark.parametrize("end", ["stall", "abort", "malformed", "served"])
async def test_a_body_that_never_comes_is_not_waited_for_longer_than_its_deadline(end: str) -> None:
    request = post("/it", zlib.compress(BODY)[:-1] + b"x", "Content-Encoding: deflate")
    async with serving([route(lambda _request: {}, "POST")]) as site:
        client = site.connect()
        client.send(post("/it", BODY)[:-5] if end != "malformed" else request[:-5])
        await settle()
        admitted = site.listener.inflight
        if end == "abort":
            client.transport.abort()
        elif end == "malformed":
            client.send(request[-5:])
        elif end == "served":
            client.send(BODY[-5:])
        await site.listener.quiet()

    assert admitted == 1
    assert site.listener.inflight == 0


@pytest.mark.parametrize("kind", ["length", "streamed"])
async def test_a_body_that_does_not_come_is_refused_in_time_for_a_clean_drain(kind: str) -> None:
    """A client that stops sending must not hold up a drain until its deadline, where everything is cut."""
    handler = count_body if kind == "streamed" else lambda request: {"bytes": len(request.body)}
    async with serving([route(handler, "POST", stream_body=kind == "streamed")]) as site:
        client, loop = site.connect(), asyncio.get_running_loop()
        client.send(post("/it", BODY)[:-5])
        await settle()
        began = loop.time()
        site.listener.stop_intake(until=began + 3.0)
        # A byte now and then is not enough: the body has to be whole.
        loop.call_later(1.5, client.send, BODY[-5:-4])
        await site.listener.quiet()
        elapsed = loop.time() - began
        answers = await client.gone()

    assert elapsed == pytest.approx(2.0, abs=0.1)
    assert [(answer.status, answer.json()["phase"]) for answer in answers] == [(503, "draining")]


async def test_a_client_that_does_not_read_is_not_waited_for_until_the_end_of_the_drain() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 65_536

    async with serving([route(lambda _request: StreamResponse(200, pieces()))]) as site:
        client, _connection, transport = site.join()
        transport.pause_reading()
        client.send(get("/it"))
        await settle(200)
        began = asyncio.get_running_loop().time()
        site.listener.stop_intake(until=began + 3.0)
        await site.listener.quiet()
        elapsed = asyncio.get_running_loop().time() - began

    assert elapsed == pytest.approx(2.0, abs=0.1)


async def test_a_drain_tells_the_requests_that_wait_and_those_that_begin_to_wait_later() -> None:
    told: list[str] = []

    async def wait(request: Request) -> dict[str, str]:
        async with until_drain(request.shutdown):
            await asyncio.sleep(20)
        told.append(request.path)
        return {"path": request.path}

    async def late(request: Request) -> dict[str, str]:
        await asyncio.sleep(1)
        return await wait(request)

    async with serving([route(wait, path="/soon"), route(late, path="/late")]) as site:
        clients = [site.connect(), site.connect()]
        for client, path in zip(clients, ("/soon", "/late"), strict=True):
            client.send(get(path))
        await settle()
        loop = asyncio.get_running_loop()
        began = loop.time()
        site.listener.stop_intake()
        await site.listener.quiet()
        elapsed = loop.time() - began
        answers = [(await client.gone())[0] for client in clients]

    assert told == ["/soon", "/late"]
    assert elapsed == pytest.approx(1.0)
    assert [(answer.status, answer.headers[b"connection"]) for answer in answers] == [(200, b"close")] * 2


async def test_a_connection_whose_stream_ends_while_the_listener_drains_is_closed() -> None:
    """The head of the stream may have promised to keep it; but nothing more is taken there."""

    async def pieces(request: Request) -> AsyncIterator[bytes]:
        yield b"first"
        async with until_drain(request.shutdown):
            await asyncio.sleep(20)
        yield b"last"

    async with serving([route(lambda request: StreamResponse(200, pieces(request)))]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        site.listener.stop_intake()
        await site.listener.quiet()
        (answer,) = await client.gone()
        await settle()
        held = site.count("open_connections")

    assert answer.body == b"firstlast"
    assert held == 0


async def until_admitted(site: Site) -> None:
    """Wait until the listener has a request, or for ten seconds."""
    for _ in range(1000):
        if site.listener.inflight:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no request was admitted")


async def cut(site: Site) -> None:
    """End the listener as the drain's deadline does."""
    site.listener.stop_intake()
    await site.listener.close()


@BOTH_LOOPS
@pytest.mark.parametrize("waits_for", ["body", "handler"])
async def test_who_is_cut_at_the_drain_deadline_hears_503_canceled(loop_name: str, waits_for: str) -> None:
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    def wait(_request: Request) -> asyncio.Future[None]:
        begun.set()
        return reply

    async with serving([route(wait, "POST")], {"host": "127.0.0.1"}) as site:
        client = await site.dial()
        client.send(post("/it", BODY)[: -5 if waits_for == "body" else None])
        await until_admitted(site)
        await cut(site)
        answers = await client.gone()

    assert begun.is_set() == (waits_for == "handler")
    assert [(answer.status, answer.json()["code"]) for answer in answers] == [(503, "canceled")]


async def test_who_does_not_take_its_answers_is_cut_without_more_words() -> None:
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    routes = [route(lambda _request: {"x": "x" * 500_000}, "POST", "/large"), route(lambda _request: reply, "POST")]
    async with serving(routes) as site:
        client, _connection, transport = site.join()
        transport.pause_reading()
        client.send(post("/it", BODY) + post("/large", BODY))
        await settle()
        reply.set_result(None)
        await settle()
        client.send(post("/it", BODY)[:-3])
        await cut(site)
        await settle()
        held = site.count("open_connections")

    assert held == 0
