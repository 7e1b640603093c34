"""Upstreams that lie, stall, babble and die: the client hears 502, 503 or 504, or sees its answer cut; never a lie."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from penstock.kernel.breaker import BreakerPolicy
from penstock.testing.line import Weather
from tests.net.server.listener_kit import get, settle, split_answers
from tests.services.omnigate.proxy.kit import (
    UpstreamConnection,
    gateway,
    hangs_up,
    ok,
    says,
    silent,
    until,
)

STATUS = b"HTTP/1.1 200 OK\r\n"
# Answers that are no answer: 502, and the connection is not used again.
LIES = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"<html>hello</html>",
    "no status": b"HTTP/1.1 \r\nContent-Length: 0\r\n\r\n",
    "status 99": b"HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 600 No\r\nContent-Length: 0\r\n\r\n",
    "length and chunked": STATUS + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": STATUS + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "bad length": STATUS + b"Content-Length: -1\r\n\r\n",
    "huge length": STATUS + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "unknown coding": STATUS + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": STATUS + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "chunk too long": STATUS + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "folded field": STATUS + b"X-A: 1\r\n 2\r\nContent-Length: 0\r\n\r\n",
    "space before colon": STATUS + b"Content-Length : 0\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "NUL in a field": STATUS + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n",
    "header bomb": STATUS + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n",
    "one huge field": STATUS + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
    "endless head": STATUS + b"X: " + b"y" * 40_000,
    "101 unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    "1xx storm": b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + ok(),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_an_answer_that_is_none_is_502_and_ends_the_connection(lie: bytes) -> None:
    async with gateway(says(lie), retry=False) as gate:
        answer = await gate.ask(get("/api/x"))
        await settle()

        assert (answer.status, answer.json()["code"]) == (502, "downstream_unavailable")
        assert gate.upstreams["up0.test"].open == 0
        assert gate.count("downstream_errors_total", service="/api", reason="downstream_unavailable") == 1


@pytest.mark.parametrize("beyond", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"x"], ids=["answer", "byte"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "known head"])
async def test_bytes_beyond_the_answer_reach_nobody(beyond: bytes, *, again: bool) -> None:
    answers = [ok(b"mine"), ok(b"mine")] if again else [ok(b"mine")]

    def script(connection, raw) -> None:
        connection.next_request()
        said = answers.pop(0) if answers else ok(b"later")
        connection.say(said, b"" if answers or said == ok(b"later") else beyond)

    async with gateway(script) as gate:
        bodies = [(await gate.ask(get("/api/x"))).body for _ in range(3)]
        await settle()

        assert bodies == ([b"mine", b"mine", b"later"] if again else [b"mine", b"later", b"later"])
        assert len(gate.upstreams["up0.test"].connections) == 2


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async with gateway() as gate:
        await gate.ask(get("/api/x"))
        gate.upstreams["up0.test"].connections[0].say(ok(b"unasked"))
        await settle()
        answer = await gate.ask(get("/api/x"))

        assert answer.body == b"ok"
        assert len(gate.upstreams["up0.test"].connections) == 2


SMALL = {
    "length": ok(b"twelve bytes", "X-A: 1"),
    "chunked": STATUS + b"Transfer-Encoding: chunked\r\n\r\n6\r\ntwelve\r\n6\r\n bytes\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("answer", SMALL.values(), ids=SMALL)
async def test_a_short_answer_that_is_cut_anywhere_is_502(answer: bytes) -> None:
    for at in range(len(answer)):
        async with gateway(says(answer[:at], close=True), retry=False) as gate:
            got = await gate.ask(get("/api/x"))

            assert got.status == 502, f"cut after {at} bytes"
            assert b"twelve" not in got.body


@pytest.mark.parametrize("answer", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("gap_s", [0.0, 0.001, 0.004, 0.006, 0.5])
async def test_an_answer_that_comes_byte_by_byte_arrives_whole(answer: bytes, gap_s: float) -> None:
    async with gateway(says(answer), timeout_s=500.0, options={"default_deadline_s": 500.0}) as gate:
        gate.upstreams["up0.test"].back = Weather(chunk_bytes=1, gap_s=gap_s)
        got = await gate.ask(get("/api/x"))

        assert (got.status, got.body) == (200, b"twelve bytes")


LONG = b"0123456789" * 20_000
CUTS = {
    "length": ok(LONG)[:150_000],
    "chunked": STATUS + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(LONG), LONG),
    "bad chunk": STATUS + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\nzz\r\n" % (len(LONG), LONG),
}


@pytest.mark.parametrize("said", CUTS.values(), ids=CUTS)
async def test_a_long_answer_that_is_cut_is_cut_for_the_client_too(said: bytes) -> None:
    async with gateway(says(said, close=True)) as gate:
        data = await gate.raw(get("/api/x"))

        answers, rest = split_answers(data)
        assert answers == []
        assert rest.startswith(STATUS)
        assert not rest.endswith(b"0\r\n\r\n")
        assert gate.count("downstream_errors_total", service="/api", reason="downstream_unavailable") == 1


async def test_a_stalled_stream_is_cut_after_the_read_timeout() -> None:
    async with gateway(says(ok(LONG)[:100_000])) as gate:
        loop = asyncio.get_running_loop()
        began = loop.time()
        data = await gate.raw(get("/api/x"))

        assert loop.time() - began == pytest.approx(5.0, abs=0.1)
        assert len(data) < len(LONG)
        assert gate.count("io_timeouts_total", op="read") == 1
        assert gate.upstreams["up0.test"].open == 0


async def test_an_upstream_that_never_answers_is_504_at_the_deadline() -> None:
    async with gateway(silent) as gate:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await gate.ask(get("/api/x"))
        await settle()

        told = answer.json()
        assert (answer.status, told["code"], told["op"], told["budget_ms"]) == (504, "timeout", "rpc", 1980)
        assert loop.time() - began == pytest.approx(2.0, abs=0.06)
        assert gate.upstreams["up0.test"].open == 0
        assert gate.count("io_timeouts_total", op="rpc") == 1


@pytest.mark.parametrize(
    ("given", "route_s", "after_s"), [("500", 5.0, 0.5), ("9000", 5.0, 5.0), ("9000", 0.3, 0.3), ("10", 5.0, 0.01)]
)
async def test_the_clients_deadline_counts_up_to_the_routes(given: str, route_s: float, after_s: float) -> None:
    async with gateway(silent, timeout_s=route_s) as gate:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await gate.ask(get("/api/x", f"X-Deadline-Ms: {given}"))

        assert answer.status == 504
        assert after_s / 2 - 0.001 <= loop.time() - began <= after_s + 0.06


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "soon", "", "9" * 10])
async def test_a_deadline_that_is_none_is_malformed(given: str) -> None:
    async with gateway() as gate:
        client = gate.connect()
        client.send(get("/api/x", f"X-Deadline-Ms: {given}"))
        refused = await client.answer()
        client.send(get("/api/x"))

        assert (refused.status, refused.json()["code"]) == (400, "malformed")
        assert (await client.answer()).status == 200


async def test_a_drip_that_has_begun_is_not_bound_by_the_deadline() -> None:
    slow = Weather(chunk_bytes=100, gap_s=0.1)
    async with gateway(says(ok(b"z" * 8_000))) as gate:
        gate.upstreams["up0.test"].back = slow
        answer = await gate.ask(get("/api/x", "X-Deadline-Ms: 1000"))

        assert (answer.status, len(answer.body)) == (200, 8_000)


async def test_nobody_there_is_503() -> None:
    async with gateway(retry=False) as gate:
        gate.upstreams["up0.test"].refuses = ConnectionRefusedError(111, "no")
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.json()["code"]) == (503, "downstream_unavailable")
        assert b"retry-after" in answer.headers


async def test_a_dial_that_hangs_is_504() -> None:
    async with gateway(
        timeout_s=9.0, options={"default_deadline_s": 9.0, "connect_timeout_s": 1.0}, retry=False
    ) as gate:
        gate.upstreams["up0.test"].dial_s = 60.0
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.json()["op"]) == (504, "connect")


async def test_an_upstream_that_fails_too_often_is_left_alone_for_a_while() -> None:
    policy = BreakerPolicy(samples_min=4, open_s=5.0)
    async with gateway(hangs_up, retry=False, options={"breaker": policy}) as gate:
        upstream = gate.upstreams["up0.test"]
        first = [(await gate.ask(get("/api/x"))).status for _ in range(4)]
        asked = len(upstream.requests)
        refused = await gate.ask(get("/api/x"))
        assert (len(upstream.requests), gate.proxies.healthy()) == (asked, {"/api": False})

        upstream.script = says(ok())
        await asyncio.sleep(5.0)

        assert first == [502] * 4
        assert (refused.status, refused.json()["code"]) == (503, "downstream_unavailable")
        assert (await gate.ask(get("/api/x"))).status == 200
        assert gate.proxies.healthy() == {"/api": True}


async def test_an_open_breaker_is_shown_and_what_it_refuses_is_counted_as_unanswered() -> None:
    policy = BreakerPolicy(samples_min=4, open_s=5.0)
    async with gateway(hangs_up, retry=False, options={"breaker": policy}) as gate:

        def told() -> tuple[float, float]:
            refused = gate.count("downstream_errors_total", service="/api", reason="breaker_open")
            return gate.count("breaker_open", service="/api", upstream="http://up0.test"), refused

        assert told() == (0, 0)
        for _ in range(4):
            await gate.ask(get("/api/x"))
        assert told() == (1, 0)
        for _ in range(3):
            await gate.ask(get("/api/x"))
        assert told() == (1, 3)

        gate.upstreams["up0.test"].script = says(ok())
        await asyncio.sleep(5.0)
        await gate.ask(get("/api/x"))
        assert told() == (0, 3)


async def test_the_breakers_of_a_route_that_is_gone_are_shown_no_more() -> None:
    async with gateway() as gate:
        (route,) = (proxy.route for proxy in gate.proxies.proxies)
        shown = next(f for f in gate.proxies.inventory.metrics.families() if f.name == "breaker_open").series
        assert len(shown) == 1
        gate.proxies.serve([replace(route, timeout_s=3.0)])
        assert len(shown) == 1
        gate.proxies.serve([])

        assert shown == {}


async def test_clients_in_a_hurry_do_not_shut_an_upstream_for_the_others() -> None:
    def slow(connection: UpstreamConnection, _raw: bytes) -> None:
        asyncio.get_running_loop().call_later(0.3, connection.say, ok(b"well"))

    async with gateway(slow) as gate:
        hurried = [await gate.ask(get("/api/x", "X-Deadline-Ms: 200")) for _ in range(8)]

        assert {answer.status for answer in hurried} == {504}
        assert (await gate.ask(get("/api/x"))).body == b"well"


async def test_who_waited_in_line_in_vain_does_not_blame_the_upstream() -> None:
    async with gateway(silent, timeout_s=60.0, options={"calls_max": 1}) as gate:
        first = gate.connect()
        first.send(get("/api/slow", "X-Deadline-Ms: 30000"))
        await settle()
        late = [await gate.ask(get("/api/x", "X-Deadline-Ms: 300")) for _ in range(8)]
        gate.upstreams["up0.test"].script = says(ok(b"well"))
        first.transport.abort()
        await settle()

        assert {answer.status for answer in late} == {504}
        assert (await gate.ask(get("/api/x"))).body == b"well"


async def test_a_client_that_reads_an_answer_to_the_end_of_the_connection_is_never_told_a_cut_one_is_whole() -> None:
    said = STATUS + b"\r\n" + LONG
    async with gateway(says(said)) as gate:
        client = gate.connect()
        client.send(b"GET /api/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await until(client, lambda data: len(data) > 10_000)
        gate.upstreams["up0.test"].connections[0].transport.abort()
        await client.gone()

        # In memory a reset shows as lost bytes or an error; over sockets it is ECONNRESET.
        assert client.lost is not None or len(client.data) < len(LONG)
