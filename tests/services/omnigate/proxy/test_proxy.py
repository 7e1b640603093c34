"""The reverse proxy: what is asked arrives as it was asked, and what is answered comes back as it was answered."""

from __future__ import annotations

import pytest

from tests.net.server.listener_kit import get, post
from tests.services.omnigate.proxy.kit import (
    gateway,
    hangs_up,
    in_turn,
    ok,
    says,
    until,
)


def fields_of(raw: bytes) -> dict[bytes, bytes]:
    head = raw.partition(b"\r\n\r\n")[0]
    return dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])


async def test_a_request_arrives_at_the_upstream_and_its_answer_at_the_client() -> None:
    async with gateway(says(ok(b"hello", "X-Thing: 1", "Date: Sun, 01 Jan 2023 00:00:00 GMT"))) as gate:
        answer = await gate.ask(get("/api/things?b=2&a=1", "X-Corr-ID: abc", "Accept: text/plain"))

        assert (answer.status, answer.body) == (200, b"hello")
        assert answer.headers == {
            b"x-thing": b"1",
            b"date": b"Sun, 01 Jan 2023 00:00:00 GMT",
            b"content-length": b"5",
            b"x-corr-id": b"abc",
        }
        (raw,) = gate.upstreams["up0.test"].requests
        assert raw.startswith(b"GET /api/things?b=2&a=1 HTTP/1.1\r\nHost: up0.test\r\n")
        fields = fields_of(raw)
        assert fields[b"accept"] == b"text/plain"
        assert fields[b"X-Corr-ID"] == b"abc"
        assert 0 < int(fields[b"X-Deadline-Ms"]) <= 1980


@pytest.mark.parametrize(
    ("base", "strip", "asked", "passed_on"),
    [
        ("", False, "/api", b"/api"),
        ("", False, "/api/a%2Fb/%7Ec?q=%20&q=1", b"/api/a%2Fb/%7Ec?q=%20&q=1"),
        ("", True, "/api", b"/"),
        ("", True, "/api/", b"/"),
        ("", True, "/api/x/", b"/x/"),
        ("", True, "/%61pi/a%2Fb?x", b"/a%2Fb?x"),
        ("/v2", False, "/api/x", b"/v2/api/x"),
        ("/v2/", True, "/api/x?y", b"/v2/x?y"),
    ],
)
async def test_the_path_is_passed_on_undecoded(base: str, strip: bool, asked: str, passed_on: bytes) -> None:
    async with gateway(upstreams=(f"http://up0.test{base}",), strip_prefix=strip) as gate:
        assert (await gate.ask(get(asked))).status == 200

        assert gate.upstreams["up0.test"].requests[0].split(b" ")[1] == passed_on


async def test_an_absolute_target_is_passed_on_as_a_path() -> None:
    async with gateway() as gate:
        await gate.ask(b"GET http://localhost/api/x HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert gate.upstreams["up0.test"].requests[0].startswith(b"GET /api/x HTTP/1.1\r\nHost: up0.test\r\n")


async def test_another_path_or_method_is_not_passed_on() -> None:
    async with gateway(methods=("GET",)) as gate:
        assert (await gate.ask(get("/apix"))).status == 404
        assert (await gate.ask(post("/api/x", b"1"))).status == 405

        assert gate.upstreams["up0.test"].requests == []


@pytest.mark.parametrize(("methods", "status"), [(("GET",), 204), (("GET", "OPTIONS"), 200)])
async def test_options_is_passed_on_only_where_the_route_names_it(methods: tuple[str, ...], status: int) -> None:
    async with gateway(methods=methods) as gate:
        answer = await gate.ask(get("/api/x").replace(b"GET", b"OPTIONS"))

        assert answer.status == status
        assert len(gate.upstreams["up0.test"].requests) == (status == 200)


async def test_connections_are_kept_and_used_again() -> None:
    async with gateway() as gate:
        for _ in range(5):
            assert (await gate.ask(get("/api/x"))).body == b"ok"

        assert len(gate.upstreams["up0.test"].connections) == 1


OURS = "Set-Cookie: penstock_session=forged"


async def test_repeated_fields_stay_apart_and_in_order() -> None:
    async with gateway(says(ok(b"", "Set-Cookie: a=1", "X-B: 1", "Set-Cookie: b=2; Path=/", OURS))) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await client.answer()
        client.send(get("/api/x"))
        data = await until(client, lambda data: b"\r\n\r\n" in data)

        cookies = [line for line in data.split(b"\r\n") if line.startswith(b"set-cookie")]
        # A session with the node is not an upstream's to give, and cookies know no ports.
        assert cookies == [b"set-cookie: a=1", b"set-cookie: b=2; Path=/"]


@pytest.mark.parametrize("status", ["500 Oops", "404 Not Found", "301 Moved", "418 Teapot", "503 Gone Fishing"])
async def test_a_status_is_the_upstreams_own(status: str) -> None:
    async with gateway(says(ok(b"why", "Location: /x", status=status)), retry=False) as gate:
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.body) == (int(status[:3]), b"why")
        assert answer.headers[b"location"] == b"/x"


async def test_an_answer_to_head_keeps_its_length_and_has_no_body() -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: x\r\n\r\n"
    async with gateway(in_turn(says(said), says(ok()))) as gate:
        client = gate.connect()
        client.send(get("/api/x").replace(b"GET", b"HEAD"))
        (head,) = await client.answers(1, heads_only=[0])
        client.send(get("/api/y"))
        after = await client.answer()

        assert (head.status, head.headers[b"content-length"], head.body) == (200, b"1234", b"")
        assert (after.status, after.body) == (200, b"ok")
        assert len(gate.upstreams["up0.test"].connections) == 1


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_without_a_body_is_passed_on_without_one(status: str) -> None:
    said = f"HTTP/1.1 {status}\r\nETag: x\r\nContent-Length: 7\r\n\r\n".encode()
    async with gateway(in_turn(says(said), says(ok()))) as gate:
        client = gate.connect()
        client.send(get("/api/x") + get("/api/y"))
        data = await until(client, lambda data: data.count(b"HTTP/1.1") == 2)

        first, _, second = data.partition(b"\r\n\r\n")
        assert b"content-length" not in first.lower()
        assert second.startswith(b"HTTP/1.1 200")


async def test_chunked_and_open_ended_answers_arrive_whole() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: no\r\n\r\n"
    ended = b"HTTP/1.1 200 OK\r\n\r\nto the end"
    async with gateway(in_turn(says(chunked), says(ended, close=True))) as gate:
        first, second = await gate.ask(get("/api/x")), await gate.ask(get("/api/x"))

        assert (first.body, second.body) == (b"abcde", b"to the end")
        assert b"x-trailer" not in first.headers


async def test_a_body_is_passed_on_with_our_own_framing() -> None:
    async with gateway(says(ok())) as gate:
        await gate.ask(post("/api/x", b"payload", "Content-Type: text/plain"))

        (raw,) = gate.upstreams["up0.test"].requests
        head, _, body = raw.partition(b"\r\n\r\n")
        assert body == b"payload"
        assert fields_of(raw)[b"Content-Length"] == b"7"
        assert head.lower().count(b"content-length") == 1


async def test_an_informational_answer_is_skipped() -> None:
    said = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok(b"final")
    async with gateway(says(said)) as gate:
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.body) == (200, b"final")


async def test_a_compressed_answer_is_passed_on_untouched() -> None:
    packed = bytes(range(256))
    async with gateway(says(ok(packed, "Content-Encoding: gzip"))) as gate:
        answer = await gate.ask(get("/api/x", "Accept-Encoding: gzip"))

        assert (answer.body, answer.headers[b"content-encoding"]) == (packed, b"gzip")


async def test_an_answer_without_a_date_gets_one() -> None:
    async with gateway() as gate:
        assert b"GMT" in (await gate.ask(get("/api/x"))).headers[b"date"]


async def test_a_body_sent_with_an_answer_to_head_reaches_nobody() -> None:
    async with gateway(says(ok(b"body"))) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await client.answer()
        client.send(get("/api/x").replace(b"GET", b"HEAD"))
        (head,) = await client.answers(1, heads_only=[0])
        client.send(get("/api/x"))

        assert (head.status, client.data) == (200, b"")
        assert (await client.answer()).body == b"body"
        assert len(gate.upstreams["up0.test"].connections) == 2


async def test_a_kept_connection_that_died_is_not_replaced_for_what_may_not_be_repeated() -> None:
    async with gateway(in_turn(says(ok()), hangs_up, says(ok(b"again")))) as gate:
        await gate.ask(get("/api/x"))
        answer = await gate.ask(post("/api/x", b"once"))

        assert (answer.status, len(gate.upstreams["up0.test"].requests)) == (502, 2)


async def test_a_kept_connection_that_died_is_replaced_and_nobody_notices() -> None:
    async with gateway(in_turn(says(ok()), hangs_up, says(ok(b"again"))), retry=False) as gate:
        await gate.ask(get("/api/x"))
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.body) == (200, b"again")
        assert len(gate.upstreams["up0.test"].connections) == 2


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    held = []

    def late(connection, raw) -> None:
        path = connection.next_request().split(b" ")[1]
        held.append((connection, path))
        if len(held) == 3:
            for waiting, asked in reversed(held):
                waiting.say(ok(asked))

    async with gateway(late) as gate:
        client = gate.connect()
        client.send(get("/api/1") + get("/api/2") + get("/api/3"))

        assert [answer.body for answer in await client.answers(3)] == [b"/api/1", b"/api/2", b"/api/3"]


async def test_a_route_that_leads_back_to_the_gateway_is_refused() -> None:
    async with gateway() as gate:
        answer = await gate.ask(get("/api/x", f"Via: {gate.proxies.via.decode()}"))

        assert (answer.status, answer.json()["code"]) == (502, "downstream_unavailable")
        assert gate.upstreams["up0.test"].requests == []
