"""Bodies on their way through: streamed both ways at once, held back by the slower side, cut with either end."""

from __future__ import annotations

import asyncio
import gzip
import random

import pytest

from penstock.testing.line import Weather
from tests.net.server.listener_kit import get, post, settle
from tests.services.omnigate.proxy.kit import (
    UpstreamConnection,
    gateway,
    in_turn,
    ok,
    says,
    silent,
    until,
)

KIB, MIB = 1 << 10, 1 << 20
LONG = bytes(range(256)) * (4 * KIB)  # 1 MiB
STATUS = b"HTTP/1.1 200 OK\r\n"


class Collected:
    """Answers once a request with a body is here as a whole; `bodies` keeps what came."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []

    def __call__(self, connection: UpstreamConnection, raw: bytes) -> None:
        head, _, rest = raw.partition(b"\r\n\r\n")
        body = _dechunked(rest) if b"Transfer-Encoding: chunked" in head else _measured(head, rest)
        if body is not None:
            connection.next_request()
            self.heads.append(head)
            self.bodies.append(body)
            connection.say(ok(b"%d" % len(body)))


def _measured(head: bytes, rest: bytes) -> bytes | None:
    length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
    return rest if len(rest) == length else None


def _dechunked(rest: bytes) -> bytes | None:
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if size == b"0":
            return body if rest == b"\r\n" else None
        length = int(size, 16)
        if len(rest) < length + 2:
            return None
        body, rest = body + rest[:length], rest[length + 2 :]
    return None


@pytest.mark.parametrize("size", [1, 16 * KIB, 64 * KIB + 1, MIB])
async def test_a_body_of_known_length_arrives_with_it(size: int) -> None:
    upstream = Collected()
    async with gateway(upstream) as gate:
        answer = await gate.ask(post("/api/x", LONG[:size]))

        assert answer.body == b"%d" % size
        assert upstream.bodies == [LONG[:size]]
        assert b"Content-Length: %d" % size in upstream.heads[0]


async def test_a_chunked_body_arrives_chunked_without_its_trailers() -> None:
    upstream = Collected()
    async with gateway(upstream) as gate:
        client = gate.connect()
        client.send(b"POST /api/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await settle()
        client.send(b"6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n")

        assert (await client.answer()).body == b"11"
        assert upstream.bodies == [b"hello world"]


async def test_a_compressed_body_is_inflated_under_the_guard_and_arrives_plain() -> None:
    upstream = Collected()
    async with gateway(upstream) as gate:
        plain = random.Random(7).randbytes(20_000) * 4
        answer = await gate.ask(post("/api/x", gzip.compress(plain), "Content-Encoding: gzip"))

        assert answer.status == 200
        assert upstream.bodies == [plain]
        assert b"content-encoding" not in upstream.heads[0].lower()


async def test_a_body_that_inflates_too_far_never_arrives_whole() -> None:
    upstream = Collected()
    async with gateway(upstream) as gate:
        answer = await gate.ask(post("/api/x", gzip.compress(bytes(500_000)), "Content-Encoding: gzip"))
        await settle()

        assert (answer.status, answer.json()["limit"]) == (413, "inflate_ratio")
        assert upstream.bodies == []
        assert gate.upstreams["up0.test"].open == 0


@pytest.mark.parametrize("size", [MIB + 1, 8 * MIB])
async def test_a_body_over_the_cap_is_refused_before_it_is_passed_on(size: int) -> None:
    async with gateway(silent) as gate:
        client = gate.connect()
        client.send(post("/api/x", b"", "X: y").replace(b"Content-Length: 0", b"Content-Length: %d" % size))
        answer = await client.answer()

        assert (answer.status, answer.json()["limit"]) == (413, "body")
        assert gate.upstreams["up0.test"].connections == []


async def test_a_chunked_body_over_the_cap_is_cut_at_it() -> None:
    async with gateway(silent) as gate:
        client = gate.connect()
        client.send(b"POST /api/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(17):
            client.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        (answer,) = await client.gone()
        await settle()

        assert (answer.status, answer.json()["code"]) == (413, "over_limit")
        upstream = gate.upstreams["up0.test"]
        assert upstream.open == 0
        assert not any(raw.endswith(b"0\r\n\r\n") for raw in upstream.requests)


async def test_both_ways_stream_at_once() -> None:
    """An upstream that answers each piece as it comes: the client hears the echo before it has sent the rest."""

    def echo(connection: UpstreamConnection, raw: bytes) -> None:
        if b"POST" in raw:
            connection.say(STATUS, b"Transfer-Encoding: chunked\r\n\r\n")
            raw = raw.partition(b"\r\n\r\n")[2]
        connection.raw = b"seen\r\n\r\n"
        said = raw.removeprefix(b"seen\r\n\r\n")
        connection.say(said)

    async with gateway(echo) as gate:
        client = gate.connect()
        client.send(b"POST /api/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(20):
            piece = b"%04d" % number * 4 * KIB
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await until(client, lambda data, end=piece[-8:]: data.endswith(end + b"\r\n"))
            assert not client.ended
        client.send(b"0\r\n\r\n")
        answer = await client.answer()

        assert len(answer.body) == 20 * 16 * KIB


async def test_an_upstream_that_refuses_early_stops_the_upload_and_its_answer_arrives() -> None:
    def refuse(connection: UpstreamConnection, raw: bytes) -> None:
        if not connection.upstream.requests:
            connection.upstream.requests.append(raw)
            connection.say(ok(b"too much", status="413 Too Large"))

    async with gateway(refuse) as gate:
        client = gate.connect()
        client.send(post("/api/x", b"").replace(b"Content-Length: 0", b"Content-Length: %d" % MIB) + b"x" * 1000)
        answer = await client.answer()
        await settle()

        assert (answer.status, answer.body) == (413, b"too much")
        assert gate.upstreams["up0.test"].open == 0


async def test_a_slow_client_holds_the_upstream_back() -> None:
    whole = ok(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % (4 * MIB))
    sent = 0

    def feed(connection: UpstreamConnection) -> None:
        nonlocal sent
        while not connection.paused and not connection.ended and sent < 4 * MIB:
            connection.say(LONG[: 64 * KIB])
            sent += 64 * KIB

    def script(connection: UpstreamConnection, raw: bytes) -> None:
        connection.next_request()
        connection.say(whole)
        resume = lambda: (setattr(connection, "paused", False), feed(connection))  # noqa: E731
        connection.resume_writing = resume  # type: ignore[method-assign]
        feed(connection)

    async with gateway(script, listener={"write_timeout_s": 500.0}, options={"read_timeout_s": 500.0}) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await until(client, lambda data: len(data) > 0)
        client.transport.pause_reading()
        await settle(200)
        held = sent - len(client.data)

        assert held < 600 * KIB
        client.transport.resume_reading()
        await until(client, lambda data: len(data) > 4 * MIB)
        assert sent == 4 * MIB


async def test_a_slow_upstream_holds_the_client_back() -> None:
    async with gateway(
        silent, timeout_s=500.0, options={"default_deadline_s": 500.0, "write_timeout_s": 500.0}
    ) as gate:
        client, _, transport = gate.site.join()
        upstream = gate.upstreams["up0.test"]

        def stop(connection: UpstreamConnection, raw: bytes) -> None:
            connection.transport.pause_reading()

        upstream.script = stop
        client.send(post("/api/x", LONG))
        await settle(300)

        # What left the client is what the lines, the listener and the proxy hold between them.
        left = transport.get_write_buffer_size()
        assert MIB - left < 600 * KIB


async def test_an_upstream_that_does_not_take_the_body_is_504() -> None:
    async with gateway(silent, timeout_s=9.0, options={"default_deadline_s": 9.0, "write_timeout_s": 2.0}) as gate:
        gate.upstreams["up0.test"].script = lambda connection, _: connection.transport.pause_reading()
        answer = await gate.ask(post("/api/x", LONG))

        assert (answer.status, answer.json()["op"]) == (504, "write")


async def test_a_client_that_stalls_its_body_is_408_and_the_upstream_is_cut() -> None:
    async with gateway(silent, timeout_s=60.0, options={"default_deadline_s": 60.0}) as gate:
        client = gate.connect()
        client.send(post("/api/x", b"").replace(b"Content-Length: 0", b"Content-Length: 1000") + b"x" * 10)
        (answer,) = await client.gone()
        await settle()

        assert answer.status == 408
        assert gate.upstreams["up0.test"].open == 0


@pytest.mark.parametrize("when", ["before the answer", "in the answer", "in the body", "while dialling"])
async def test_a_client_that_goes_takes_its_upstream_call_with_it(when: str) -> None:
    script = says(ok(LONG)[:200_000]) if when == "in the answer" else silent
    async with gateway(script) as gate:
        upstream = gate.upstreams["up0.test"]
        upstream.dial_s = 1.0 if when == "while dialling" else 0.0
        client = gate.connect()
        data = get("/api/x")
        if when == "in the body":
            data = post("/api/x", b"").replace(b"Content-Length: 0", b"Content-Length: 1000") + b"x" * 10
        client.send(data)
        if when == "in the answer":
            await until(client, lambda data: len(data) > 1000)
        await settle()
        client.transport.abort()
        await settle()

        assert upstream.open == 0
        assert gate.site.listener.inflight == 0
        assert len(gate.proxies.scope) == 0
        await asyncio.sleep(2.0)
        assert upstream.open == 0


async def test_a_long_answer_is_passed_on_while_it_comes() -> None:
    async with gateway(says(STATUS, b"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await until(client, lambda data: b"first" in data)
        gate.upstreams["up0.test"].connections[0].say(b"6\r\nsecond\r\n0\r\n\r\n")

        assert (await client.answer()).body == b"firstsecond"


async def test_an_old_client_gets_an_answer_of_unknown_length_to_the_end_of_the_connection() -> None:
    async with gateway(says(STATUS, b"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")) as gate:
        client = gate.connect()
        client.send(b"GET /api/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await until(client, lambda data: b"first" in data)
        gate.upstreams["up0.test"].connections[0].say(b"6\r\nsecond\r\n0\r\n\r\n")
        data = await until(client, lambda _: False)

        assert data.endswith(b"\r\n\r\nfirstsecond")
        assert b"chunked" not in data.lower()


async def test_a_kept_connection_is_used_again_after_a_streamed_answer() -> None:
    async with gateway(in_turn(says(ok(LONG)), says(ok()))) as gate:
        first, second = await gate.ask(get("/api/x")), await gate.ask(get("/api/x"))

        assert (first.body == LONG, second.body) == (True, b"ok")
        assert len(gate.upstreams["up0.test"].connections) == 1


async def test_a_drain_waits_for_the_streams_under_way() -> None:
    async with gateway(says(ok(LONG)[:200_000])) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await until(client, lambda data: len(data) > 1000)
        gate.site.listener.stop_intake()
        quiet = asyncio.get_running_loop().create_task(gate.site.listener.quiet())
        await settle()
        assert not quiet.done()
        gate.upstreams["up0.test"].connections[0].say(ok(LONG)[200_000:])
        await quiet

        assert (await client.answer()).body == LONG


@pytest.mark.parametrize("kind", ["text/event-stream", "Text/Event-Stream; charset=utf-8"])
async def test_a_drain_ends_a_stream_of_events_as_its_upstream_would(kind: str) -> None:
    """It has no end of its own, and its clients come back by themselves."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with gateway(says(head, b"9\r\ndata: 1\n\n\r\n")) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await until(client, lambda data: b"data: 1" in data)
        began = asyncio.get_running_loop().time()
        gate.site.listener.stop_intake()
        await gate.site.listener.quiet()
        elapsed_s = asyncio.get_running_loop().time() - began
        (answer,) = await client.gone()
        await settle()
        left = gate.upstreams["up0.test"].open

    assert (answer.status, answer.body) == (200, b"data: 1\n\n")
    assert elapsed_s == 0.0
    assert left == 0


async def test_a_gateway_that_closes_cuts_what_is_left() -> None:
    async with gateway(silent) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await settle()
        await gate.site.listener.close()
        await gate.proxies.close()
        (answer,) = await client.gone()
        await settle()

        assert (answer.status, answer.json()["code"]) == (503, "canceled")
        assert gate.upstreams["up0.test"].open == 0


async def test_expect_continue_is_answered_here_and_not_passed_on() -> None:
    upstream = Collected()
    async with gateway(upstream) as gate:
        client = gate.connect()
        client.send(post("/api/x", b"", "Expect: 100-continue").replace(b"Content-Length: 0", b"Content-Length: 5"))
        await until(client, lambda data: b"100 Continue" in data)
        client.send(b"hello")
        got = await client.answers(2)

        assert [answer.status for answer in got] == [100, 200]
        assert upstream.bodies == [b"hello"]
        assert b"expect" not in upstream.heads[0].lower()


async def test_an_answer_that_drips_slower_than_the_patience_is_streamed_not_held() -> None:
    async with gateway(says(ok(b"x" * 1000))) as gate:
        gate.upstreams["up0.test"].back = Weather(chunk_bytes=100, gap_s=0.5)
        client = gate.connect()
        client.send(get("/api/x"))
        await until(client, lambda data: data.count(b"x") > 100)

        assert not client.data.endswith(b"x" * 1000)
        assert (await client.answer()).body == b"x" * 1000
