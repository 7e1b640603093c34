"""Saying no: at the end of the headers, cheaply, readably, and without losing the framing."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.errors import Busy, Malformed, NotReady, PenstockError, RateLimited
from penstock.net.message import Request, Response
from penstock.net.problem import problem
from penstock.net.server.admission import Refusal
from penstock.wire.http1.head import HttpHead
from tests.net.server.listener_kit import (
    ROUTES,
    get,
    post,
    route,
    serving,
    settle,
)

FULL = Refusal(Busy("The class is full.", queue="work"))


def refuse_posts(request: Request) -> Refusal | None:
    """Admit reads only."""
    return FULL if request.method == "POST" else None


async def test_a_refused_request_keeps_its_connection_when_its_body_is_small() -> None:
    async with serving(admission=refuse_posts) as site:
        client = site.connect()
        client.send(post("/echo", b"x" * 60_000) + get())
        refused, served = await client.answers(2)

    assert (refused.status, refused.json()["code"]) == (429, "busy")
    assert b"connection" not in refused.headers
    assert served.status == 200


async def test_a_refused_body_that_arrives_late_is_discarded_and_never_read_as_a_request() -> None:
    smuggled = get("/hello")
    async with serving(admission=refuse_posts) as site:
        client = site.connect()
        request = post("/echo", smuggled)
        client.send(request[: -len(smuggled)])
        refused = await client.answer()
        client.send(smuggled + get())
        served = await client.answer()
        await settle()

    assert (refused.status, served.status) == (429, 200)
    assert client.data == b""


@pytest.mark.parametrize("large", ["length", "chunked"])
async def test_a_refused_body_too_large_to_discard_closes_after_the_answer_was_read(large: str) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
    framing = b"Content-Length: 900000\r\n\r\n" if large == "length" else b"Transfer-Encoding: chunked\r\n\r\n10000\r\n"
    async with serving(admission=refuse_posts) as site:
        client = site.connect()
        client.send(head + framing + b"x" * 60_000)
        answers = await client.gone()

    assert [answer.status for answer in answers] == [429]
    assert answers[0].headers[b"connection"] == b"close"
    assert client.lost is None


async def test_a_refused_chunked_body_that_is_already_here_keeps_the_connection() -> None:
    async with serving(admission=refuse_posts) as site:
        client = site.connect()
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get()
        )
        refused, served = await client.answers(2)

    assert (refused.status, served.status) == (429, 200)


async def test_a_discarded_body_has_one_read_deadline_for_all_of_it() -> None:
    loop = asyncio.get_running_loop()
    async with serving(admission=refuse_posts) as site:
        client = site.connect()
        began = loop.time()
        client.send(post("/echo", b"x" * 100)[:-100])
        answers = await client.answers(1)
        while not client.ended:
            client.send(b"x")
            await asyncio.sleep(1.0)
        elapsed = loop.time() - began
        rest = await client.gone()

    assert [answer.status for answer in answers] == [429]
    assert rest == []
    assert elapsed <= 8.0


async def test_100_continue_comes_after_admission_only() -> None:
    async with serving(admission=refuse_posts) as refusing, serving() as admitting:
        refused_client, client = refusing.connect(), admitting.connect()
        body = b'{"text":"hi"}'
        request = post("/echo", body, "Expect: 100-continue")
        refused_client.send(request[: -len(body)])
        refused = await refused_client.answer()
        client.send(request[: -len(body)])
        go_on = await client.answer()
        client.send(body)
        served = await client.answer()

    assert refused.status == 429
    assert (go_on.status, served.status) == (100, 200)


async def test_100_continue_is_not_sent_when_the_body_is_already_here() -> None:
    async with serving() as site:
        client = site.connect()
        client.send(post("/echo", b'{"text":"hi"}', "Expect: 100-continue"))
        served = await client.answer()

    assert served.status == 200
    assert client.data == b""


async def test_100_continue_waits_for_the_answers_before_it() -> None:
    from tests.net.server.listener_kit import route

    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([*ROUTES, route(lambda _r: reply)]) as site:
        client = site.connect()
        body = b'{"text":"hi"}'
        client.send(get("/it") + post("/echo", body, "Expect: 100-continue")[: -len(body)])
        await settle()
        early = client.data
        reply.set_result({"n": 1})
        answers = await client.answers(2)
        client.send(body)
        answers += await client.answers(1)

    assert early == b""
    assert [answer.status for answer in answers] == [200, 100, 200]


async def test_refusals_are_counted_once_by_reason_and_by_endpoint_and_queue() -> None:
    async with serving(admission=refuse_posts) as site:
        client = site.connect()
        client.send(post("/echo", b"x") * 3)
        await client.answers(3)

        assert site.count("rejected_total", reason="busy") == 3
        assert site.count("busy_rejections_total", endpoint="/echo", queue="work") == 3
        assert site.count("http_requests_total", route="/echo", method="POST", status="429") == 3


async def test_own_pages_need_no_admission() -> None:
    async with serving(admission=lambda _request: FULL) as site:
        client = site.connect()
        client.send(get("/healthz") + get("/readyz") + get("/version") + get())
        answers = await client.answers(4)

    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert answers[0].json() == {"status": "ok"}
    assert answers[1].json()["ready"] is True


@pytest.mark.parametrize("error", [Busy(queue="q"), RateLimited(scope="ip", retry_after=10), Malformed("no")])
def test_a_prebuilt_refusal_says_what_the_problem_would(error: PenstockError) -> None:
    import msgspec

    refusal = Refusal(error)
    rendered = refusal.render(b"c-1", b"Date: now\r\n", close=False, head_only=False)
    head, _, body = rendered.partition(b"\r\n\r\n")
    expected = msgspec.json.decode(problem(error, "c-1").body)
    told = msgspec.json.decode(body)

    assert {**told, "retry_after": 0} == {**expected, "retry_after": 0}
    assert b"Content-Length: %d" % len(body) in head
    assert (b"Retry-After" in head) == (error.status in {429, 503})


def test_retry_after_is_a_whole_number_of_seconds_never_below_one_and_varies() -> None:
    seen = {problem(RateLimited(retry_after=4), "c").headers[0][1] for _ in range(200)}

    assert {int(value) for value in seen} == {4, 5, 6, 7, 8}


def test_a_fact_never_replaces_a_member_of_the_format() -> None:
    body = problem(Malformed("x", code="evil", corr_id="evil", extra=1), "c-1").body

    assert b"evil" not in body
    assert b'"extra":1' in body


async def test_a_client_that_asks_nonsense_in_a_loop_does_not_fill_the_log(caplog) -> None:
    caplog.set_level("INFO")
    async with serving() as site:
        client = site.connect()
        for _ in range(300):
            client.send(get("/nowhere"))
            assert (await client.answer()).status == 404
        await asyncio.sleep(1.0)
        client.send(get("/nowhere"))
        await client.answer()

    lines = [record.fields for record in caplog.records if record.fields.get("event") == "request.refused"]
    assert 100 <= len(lines) <= 120
    assert lines[-1]["unsaid"] > 150


@pytest.mark.parametrize(
    ("facts", "phase"),
    [({"phase": "draining"}, "draining"), ({}, "running"), ({"phase": "a peer's own word"}, "running")],
)
async def test_who_is_not_ready_is_counted_by_phase(facts: dict[str, str], phase: str) -> None:
    def refuse(_request: Request) -> None:
        raise NotReady("not now", **facts)

    async with serving([*ROUTES, route(refuse)]) as site:
        client = site.connect()
        client.send(get("/it") + get("/it") + get())
        answers = await client.answers(3)
        counted = site.count("not_ready_total", phase=phase)

    assert [answer.status for answer in answers] == [503, 503, 200]
    assert counted == 2


def in_other_words(head: HttpHead, error: PenstockError, corr_id: str) -> Response | None:
    """Speak another format on one path only."""
    if head.target.path != "/echo":
        return None
    return Response(error.status, f"{error.code} {corr_id}".encode(), b"text/plain")


async def test_refusals_are_written_in_the_words_of_the_requests_protocol() -> None:
    async with serving(admission=refuse_posts, problem_words=in_other_words) as site:
        client = site.connect()
        client.send(post("/echo", b"{}", "X-Corr-ID: c-1") + get("/echo") + get("/nowhere"))
        refused, method, unknown = await client.answers(3)

    assert (refused.status, refused.body) == (429, b"busy c-1")
    assert (method.status, method.headers[b"content-type"]) == (405, b"text/plain")
    assert unknown.headers[b"content-type"] == b"application/problem+json"


async def test_an_error_of_a_handler_is_written_in_the_words_of_the_requests_protocol() -> None:
    async with serving(problem_words=in_other_words) as site:
        client = site.connect()
        client.send(post("/echo", b"no json"))
        refused = await client.answer()

    assert refused.status == 400
    assert refused.body.startswith(b"malformed ")
