"""Draining while bodies arrive: an admitted request is waited for, answered, and told when it was cut."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from penstock.net.message import Request
from tests.net.server.listener_kit import (
    BOTH_LOOPS,
    Site,
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
