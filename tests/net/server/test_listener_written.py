"""Bodies that a handler has encoded itself are the answer as they are, at once or late, by either way to write them."""

from __future__ import annotations

import pytest

from penstock.kernel.errors import Conflict, Unauthenticated
from penstock.net.message import AcceptedJson, Request, WrittenJson
from penstock.net.promise import Promise
from penstock.net.server.admission import Refusal
from tests.net.server.listener_kit import (
    Answer,
    Site,
    get,
    route,
    serving,
    settle,
)

SMALL = WrittenJson(b'{"a":1}')
LARGE = WrittenJson(b'{"a":"' + b"x" * 40_000 + b'"}')


class Desk:
    """A handler that promises."""

    def __init__(self) -> None:
        self.promises: list[Promise] = []

    def __call__(self, request: Request) -> Promise:
        self.promises.append(Promise())
        return self.promises[-1]


@pytest.mark.parametrize("body", [SMALL, LARGE])
async def test_a_written_body_is_the_json_answer_at_once_and_late(body: WrittenJson) -> None:
    desk = Desk()
    async with serving([route(desk), route(lambda _: body, path="/now")]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        desk.promises[0].resolve(body)
        late = await client.answer()
        client.send(get("/now"))
        now = await client.answer()

        for answer in (late, now):
            assert (answer.status, answer.body) == (200, body)
            assert answer.headers[b"content-type"] == b"application/json"
        assert late.headers[b"x-corr-id"] != now.headers[b"x-corr-id"]
        assert site.count("http_requests_total", route="/it", method="GET", status="200") == 1
        assert site.listener.inflight == 0


async def test_written_answers_keep_the_order_of_their_requests() -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it") * 4)
        await settle()
        for number, answer in ((1, WrittenJson(b"1")), (3, SMALL), (0, Conflict()), (2, {"two": 2})):
            desk.promises[number].resolve(answer)

        assert [(answer.status, answer.json()) for answer in (await client.answers(4))[1:]] == [
            (200, 1),
            (200, {"two": 2}),
            (200, {"a": 1}),
        ]


async def test_what_was_sent_behind_a_request_is_served_when_its_answer_is_written() -> None:
    desk = Desk()
    async with serving([route(desk), route(lambda _: SMALL, path="/now")]) as site:
        client = site.connect()
        client.send(get("/it") + get("/now")[:20])
        await settle()
        desk.promises[0].resolve(SMALL)
        client.send(get("/now")[20:])

        assert [answer.status for answer in await client.answers(2)] == [200, 200]


@pytest.mark.parametrize("field", ["Connection: close", "X-Corr-ID: mine"])
async def test_a_late_written_answer_obeys_the_head_of_its_request(field: str) -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it", field))
        await settle()
        desk.promises[0].resolve(SMALL)
        answers = await client.gone() if "close" in field else [await client.answer()]

    assert [answer.body for answer in answers] == [SMALL]
    if "close" in field:
        assert answers[0].headers[b"connection"] == b"close"
    else:
        assert answers[0].headers[b"x-corr-id"] == b"mine"


async def test_a_head_request_gets_the_length_and_no_body() -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it").replace(b"GET", b"HEAD"))
        await settle()
        desk.promises[0].resolve(SMALL)
        (answer,) = await client.answers(1, heads_only=[0])

    assert (answer.headers[b"content-length"], client.data) == (b"%d" % len(SMALL), b"")


async def test_a_late_answer_while_draining_ends_the_connection() -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        site.listener.stop_intake()
        desk.promises[0].resolve(SMALL)
        (answer,) = await client.gone()

    assert (answer.body, answer.headers[b"connection"]) == (SMALL, b"close")


async def test_a_connection_that_breaks_does_not_harm_whoever_keeps_the_promise(monkeypatch) -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client, connection, _ = site.join()
        other = site.connect()
        client.send(get("/it"))
        other.send(get("/it"))
        await settle()
        monkeypatch.setattr(connection._transport, "write", lambda _data: 1 / 0)
        for promise in desk.promises:
            promise.resolve(SMALL)

        assert (await other.answer()).body == SMALL
        await client.gone()
        assert site.listener.inflight == 0


@pytest.mark.parametrize("value", [b"bytes", "text", ["a", "list"], 7, object()])
async def test_a_handler_that_returns_what_it_may_not_is_a_bug_and_one_500(value: object) -> None:
    async def late(_request: Request) -> object:
        return value

    async with serving([route(lambda _r: value, path="/now"), route(late, path="/late")]) as site:
        client = site.connect()
        client.send(get("/now") + get("/late") + get("/healthz"))
        answers = await client.answers(3)

    assert [answer.status for answer in answers] == [500, 500, 200]


@pytest.mark.parametrize("size", [7, 40_000])
async def test_an_accepted_body_is_a_202_at_once_and_late(size: int) -> None:
    desk, body = Desk(), AcceptedJson(b"1" * size)
    async with serving([route(desk), route(lambda _: body, path="/now")]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        desk.promises[0].resolve(body)
        late = await client.answer()
        client.send(get("/now"))
        now = await client.answer()

        for answer, path in ((late, "/it"), (now, "/now")):
            assert (answer.status, answer.body) == (202, body)
            assert answer.headers[b"content-type"] == b"application/json"
            assert site.count("http_requests_total", route=path, method="GET", status="202") == 1
        assert site.listener.inflight == 0


async def _again(site: Site) -> Answer:
    """Ask the route that refuses at once again."""
    client = site.connect()
    client.send(get("/it"))
    return await client.answer()


@pytest.mark.parametrize("field", ["A: b", "X-Corr-ID: mine", "Connection: close"])
async def test_a_prebuilt_refusal_is_what_its_error_would_be_at_once_and_late(field: str) -> None:
    desk, refusal = Desk(), Refusal(Unauthenticated("No."))
    async with serving(
        [route(desk, path="/late"), route(lambda _: refusal), route(lambda _: refusal.error, path="/error")]
    ) as site:
        answers = []
        for path in ("/late", "/it", "/error"):
            client = site.connect()
            client.send(get(path, field))
            await settle()
            if path == "/late":
                desk.promises[0].resolve(refusal)
            answers += await client.gone() if "close" in field else [await client.answer()]

        # Each answer has the id of its own request.
        corr_ids = {answer.headers[b"x-corr-id"] for answer in (*answers, await _again(site))}
        assert len(corr_ids) == (2 if "mine" in field else 4)
        said = []
        for answer in answers:
            assert answer.json()["corr_id"].encode() == answer.headers[b"x-corr-id"]
            headers = {name: value for name, value in answer.headers.items() if name not in (b"date", b"x-corr-id")}
            said.append((answer.status, {**answer.json(), "corr_id": ""}, {**headers, b"content-length": b""}))
        assert said[0] == said[1] == said[2]
        assert said[0][0] == 401
        assert site.count("http_requests_total", route="/it", method="GET", status="401") == 2
        assert site.count("rejected_total", reason="unauthenticated") == 4
        assert site.listener.inflight == 0


async def test_a_prebuilt_refusal_waits_for_the_answer_before_it() -> None:
    desk, refusal = Desk(), Refusal(Unauthenticated("No."))
    async with serving([route(desk), route(lambda _: refusal, path="/now")]) as site:
        client = site.connect()
        client.send(get("/it") + get("/now"))
        await settle()
        desk.promises[0].resolve(SMALL)

        assert [answer.status for answer in await client.answers(2)] == [200, 401]
        assert site.listener.inflight == 0
