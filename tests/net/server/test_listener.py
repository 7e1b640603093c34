"""The listener's answers: routing, bodies, correlation, problems, order."""

from __future__ import annotations

import asyncio
import gzip
import re

import msgspec
import pytest

from penstock.kernel.errors import Busy, NotFound
from penstock.kernel.limiter import ByteBudget
from penstock.net.message import Request, Response
from penstock.net.server.endpoint import check_strict_within
from tests.net.server.listener_kit import (
    ROUTES,
    Ask,
    echo,
    get,
    post,
    route,
    serving,
    settle,
)
from tests.wire.http1.test_request import REFUSED

UUID7 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class LooseInside(msgspec.Struct):
    """A part of a body that would drop a misspelt field."""

    text: str


class StrictAround(msgspec.Struct, forbid_unknown_fields=True):
    """A body that holds such a part."""

    inner: list[LooseInside]


async def test_a_json_request_gets_its_json_answer_on_a_connection_that_stays() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(post("/echo", b'{"text":"hi","n":2}'))
        first = await client.answer()
        client.send(get())
        second = await client.answer()

    assert (first.status, first.json()) == (200, {"text": "hi", "n": 2})
    assert (second.status, second.json()) == (200, {"path": "/hello"})
    assert b"connection" not in first.headers
    assert first.headers[b"date"].endswith(b"GMT")


async def test_every_answer_carries_the_callers_corr_id_or_a_new_uuid7() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(get("/hello", "X-Corr-ID: abc 1") + get() + get("/none", "X-Corr-ID: " + "x" * 65))
        given, made, refused = await client.answers(3)

    assert given.headers[b"x-corr-id"] == b"abc 1"
    assert UUID7.fullmatch(made.headers[b"x-corr-id"])
    assert UUID7.fullmatch(refused.headers[b"x-corr-id"])
    assert refused.json()["corr_id"] == refused.headers[b"x-corr-id"].decode()


async def test_a_corr_id_with_quotes_is_still_json() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(get("/none", 'X-Corr-ID: a"b\\c'))
        refused = await client.answer()

    assert refused.json()["corr_id"] == 'a"b\\c'


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (get("/none"), 404, "not_found"),
        (post("/hello", b"{}"), 405, "unsupported"),
        (post("/echo", b"{"), 400, "malformed"),
        (post("/echo", b'{"text":"a","unknown":1}'), 400, "malformed"),
        (post("/echo", b'{"text":1}'), 400, "malformed"),
        (post("/echo", b"x" * 101), 413, "over_limit"),
        (post("/echo", b"x", "Content-Encoding: br"), 415, "unsupported"),
        (post("/echo", b"x", "Content-Encoding: gzip, gzip"), 415, "unsupported"),
        (post("/echo", b"x", "Content-Encoding: gzip"), 400, "malformed"),
        (get("/hello", "Host: localhost"), 400, "malformed"),
    ],
)
async def test_a_request_that_cannot_be_served_gets_its_problem(request_bytes: bytes, status: int, code: str) -> None:
    async with serving(options={"body_bytes_max": 100}) as site:
        client = site.connect()
        client.send(request_bytes)
        got = await client.answer()

    body = got.json()
    assert (got.status, body["status"], body["code"]) == (status, status, code)
    assert got.headers[b"content-type"] == b"application/problem+json"
    assert {"type", "title", "detail", "corr_id", "retryable"} <= body.keys()


async def test_405_and_options_name_the_methods() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(post("/hello", b"") + b"OPTIONS /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        refused, options = await client.answers(2)

    assert refused.headers[b"allow"] == b"GET, HEAD, OPTIONS"
    assert (options.status, options.headers[b"allow"]) == (204, b"GET, HEAD, OPTIONS")


async def test_head_gets_the_head_of_get_and_no_body() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(b"HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n" + get())
        bare, full = await client.answers(2, heads_only=[0])

    assert (bare.status, bare.headers[b"content-length"]) == (200, full.headers[b"content-length"])
    assert full.json() == {"path": "/hello"}


@pytest.mark.parametrize("name", REFUSED)
async def test_torture_gets_exactly_one_answer_and_the_end_of_the_connection(name: str) -> None:
    data, status = REFUSED[name]
    routes = [*ROUTES, route(lambda _r: {}, "POST", "/", body_bytes_max=1 << 20), route(lambda _r: {}, "GET", "/")]
    async with serving(routes, {"allowed_hosts": ("a", "b")}) as site:
        client = site.connect()
        client.send(data + get("/smuggled"))
        answers = await client.gone()

    assert [answer.status for answer in answers] == [status]
    assert client.data == b""
    assert answers[0].headers[b"connection"] == b"close"


async def test_a_fault_waits_its_turn_behind_earlier_answers() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _request: reply)]) as site:
        client = site.connect()
        client.send(get("/it") + b"GET  / HTTP/1.1\r\n\r\n" + get("/it"))
        await settle()
        early = client.data
        reply.set_result({"n": 1})
        answers = await client.gone()

    assert early == b""
    assert [answer.status for answer in answers] == [200, 400]


async def test_pipelined_answers_leave_in_request_order_and_at_most_eight_are_begun() -> None:
    begun: list[asyncio.Future[dict[str, int]]] = []

    def later(_request: Request) -> asyncio.Future[dict[str, int]]:
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    async with serving([route(later)]) as site:
        client = site.connect()
        client.send(get("/it") * 12)
        await settle()
        begun_at_first = len(begun)
        for number in reversed(range(8)):
            begun[number].set_result({"n": number})
        answers = await client.answers(8)
        await settle()
        for number in range(8, 12):
            begun[number].set_result({"n": number})
        answers += await client.answers(4)

    assert begun_at_first == 8
    assert [answer.json()["n"] for answer in answers] == list(range(12))


async def test_a_bug_in_a_handler_is_one_500_that_leaks_nothing_and_the_connection_lives() -> None:
    def broken(_request: Request) -> None:
        raise KeyError("secret detail")

    async with serving([*ROUTES, route(broken)]) as site:
        client = site.connect()
        client.send(get("/it") + get())
        bad, good = await client.answers(2)

    assert (bad.status, bad.json()["code"]) == (500, "internal")
    assert b"secret" not in bad.body
    assert good.status == 200


async def test_a_value_that_cannot_be_encoded_is_a_500_too() -> None:
    async with serving([*ROUTES, route(lambda _request: {"f": object()})]) as site:
        client = site.connect()
        client.send(get("/it") + get())
        bad, good = await client.answers(2)

    assert (bad.status, good.status) == (500, 200)


@pytest.mark.parametrize("field", [(b"X-A", b"b\r\nX-Evil: 1"), (b"X-A", b"b\nc"), (b"X A", b"b"), (b"", b"b")])
async def test_a_header_that_would_split_the_answer_is_a_500(field: tuple[bytes, bytes]) -> None:
    async with serving([route(lambda _request: Response(200, b"{}", headers=[field]))]) as site:
        client = site.connect()
        client.send(get("/it"))
        answer = await client.answer()

    assert answer.status == 500
    assert b"evil" not in answer.body.lower()
    assert b"x-evil" not in answer.headers


async def test_an_error_of_ours_is_the_answer_whether_raised_or_set_or_from_a_coroutine() -> None:
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reply.set_exception(NotFound("nothing here"))

    async def missing(_request: Request) -> None:
        await asyncio.sleep(0)
        raise NotFound

    def raises(_request: Request) -> None:
        raise Busy(queue="work")

    routes = [route(raises, path="/a"), route(lambda _r: reply, path="/b"), route(missing, path="/c")]
    async with serving(routes) as site:
        client = site.connect()
        client.send(get("/a") + get("/b") + get("/c"))
        answers = await client.answers(3)
        busy = site.count("busy_rejections_total", endpoint="/a", queue="work")

    assert [answer.status for answer in answers] == [429, 404, 404]
    assert int(answers[0].headers[b"retry-after"]) >= 1
    assert answers[0].json()["retry_after"] == int(answers[0].headers[b"retry-after"])
    assert busy == 1


async def test_a_coroutine_handler_is_cut_at_its_deadline_with_504() -> None:
    cancelled = asyncio.Event()

    async def slow(_request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving([route(slow, deadline_s=2.0)]) as site:
        client = site.connect()
        began = asyncio.get_running_loop().time()
        client.send(get("/it"))
        got = await client.answer()
        elapsed = asyncio.get_running_loop().time() - began
        await settle()

    assert (got.status, got.json()["op"], got.json()["budget_ms"]) == (504, "request", 2000)
    assert 2.0 <= elapsed <= 2.2
    assert cancelled.is_set()


async def test_a_client_that_went_away_withdraws_its_unanswered_request() -> None:
    reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _request: reply)]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        client.transport.abort()
        await settle()
        inflight = site.listener.inflight

    assert reply.cancelled()
    assert inflight == 0


async def test_a_compressed_body_is_inflated_and_a_bomb_is_not() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(post("/echo", gzip.compress(b'{"text":"packed"}'), "Content-Encoding: gzip"))
        good = await client.answer()
        client.send(post("/echo", gzip.compress(b'{"text":"' + b"a" * 900_000 + b'"}'), "Content-Encoding: gzip"))
        bomb = await client.answer()

    assert good.json()["text"] == "packed"
    assert (bomb.status, bomb.json()["limit"]) == (413, "inflate_ratio")


async def test_the_body_cap_holds_for_chunked_bodies_while_they_arrive() -> None:
    async with serving(options={"body_bytes_max": 100}) as site:
        client = site.connect()
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + b"x" * 64 + b"\r\n"
        )
        await settle()
        client.send(b"40\r\n" + b"x" * 64 + b"\r\n")
        answers = await client.gone()

    assert [answer.status for answer in answers] == [413]


async def test_bodies_take_from_the_byte_budget_and_give_everything_back() -> None:
    budget = ByteBudget(2000)
    replies: list[asyncio.Future[dict[str, int]]] = []

    def later(_request: Request, _ask: Ask) -> asyncio.Future[dict[str, int]]:
        replies.append(asyncio.get_running_loop().create_future())
        return replies[-1]

    async with serving([route(later, "POST", body=Ask)], budget=budget) as site:
        first, second = site.connect(), site.connect()
        body = b'{"text":"%b"}' % (b"x" * 800)
        first.send(post("/it", body))
        await settle()
        held = budget.in_use
        second.send(post("/it", body))
        refused = await second.answer()
        replies[0].set_result({"n": 1})
        served = await first.answer()
        second.send(post("/it", body)[:-5])
        await settle()
        second.transport.abort()
        await settle()

    assert held == len(body)
    assert (refused.status, refused.json()["limit"]) == (429, "node_bytes")
    assert [reply.cancelled() for reply in replies] == [False, True]
    assert served.status == 200
    assert budget.in_use == 0


async def test_each_answer_is_counted_by_route_method_and_status() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(get() + get("/none") + post("/echo", b"{"))
        await client.answers(3)

        assert site.count("http_requests_total", route="/hello", method="GET", status="200") == 1
        assert site.count("http_requests_total", route="unmatched", method="GET", status="404") == 1
        assert site.count("http_requests_total", route="/echo", method="POST", status="400") == 1
        assert site.count("request_latency_seconds", route="/hello") == 1
        assert site.count("rejected_total", reason="not_found") == 1
        assert site.count("inflight_requests") == 0


async def test_one_turn_handles_at_most_thirty_two_requests() -> None:
    turns: list[int] = []
    count = 0
    loop = asyncio.get_running_loop()

    def tick(_request: Request) -> Response:
        nonlocal count
        if count == 0:
            loop.call_soon(close_turn)
        count += 1
        return Response(200, b"{}")

    def close_turn() -> None:
        nonlocal count
        turns.append(count)
        count = 0

    async with serving([route(tick)]) as site:
        client = site.connect()
        client.send(get("/it") * 10_000)
        answers = await client.answers(10_000)

    assert len(answers) == 10_000
    assert sum(turns) + count == 10_000
    assert max(turns) <= 32


async def test_a_handler_sees_the_whole_request() -> None:
    seen: list[Request] = []

    def look(request: Request) -> None:
        seen.append(request)

    async with serving([route(look, path="/v1/{topic}/peek")]) as site:
        client = site.connect()
        client.send(get("/v1/a%2Fb/peek?x=1&y=%20", "Traceparent: 00-ab-cd-01", "X-Two: a", "X-Two: b"))
        got = await client.answer()

    request = seen[0]
    assert got.status == 204
    assert (request.params, request.segments, request.path) == (
        {"topic": "a/b"},
        ("v1", "a/b", "peek"),
        "/v1/a%2Fb/peek",
    )
    assert request.query_params() == {"x": "1", "y": " "}
    assert request.traceparent == "00-ab-cd-01"
    assert request.headers[b"x-two"] == b"a, b"
    assert request.peer.host == "127.0.0.1"


async def test_a_request_body_struct_must_forbid_unknown_fields() -> None:
    class Loose(msgspec.Struct):
        text: str

    with pytest.raises(ValueError, match="forbid unknown fields"):
        async with serving([route(echo, "POST", body=Loose)]):
            raise AssertionError("it started")


def test_a_struct_inside_a_request_body_must_forbid_them_too() -> None:
    check_strict_within(list[int])
    with pytest.raises(ValueError, match="LooseInside must forbid unknown fields"):
        check_strict_within(StrictAround)


async def test_a_method_that_no_route_takes_is_answered_with_the_ones_it_takes() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(
            b"TRACE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nTRACE /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        client.send(b"TRACE /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc" + get("/healthz"))
        client.send(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers = await client.gone()

    assert [answer.status for answer in answers] == [405, 404, 405, 200, 405]
    assert answers[0].headers[b"allow"] == answers[2].headers[b"allow"] == b"GET, HEAD, OPTIONS"
    assert b"GET" in answers[4].headers[b"allow"]
