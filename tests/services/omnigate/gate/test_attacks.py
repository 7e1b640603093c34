"""Refusals that a hostile or merely odd client asks for.

Framed right for whoever asked, in order, and nothing is held after.
"""

from __future__ import annotations

import pytest

from penstock.services.omnigate.config import QuotaOptions
from tests.net.server.listener_kit import (
    get,
    post,
    settle,
    split_answers,
)
from tests.services.omnigate.gate.kit import gated

NONE_LEFT = QuotaOptions(default_rps=1, burst_rps=1, per_ip_rps=0, per_cap_rps=0)


def as_head(request: bytes) -> bytes:
    return request.replace(b"GET", b"HEAD", 1)


def as_old(request: bytes) -> bytes:
    return request.replace(b"HTTP/1.1", b"HTTP/1.0", 1)


@pytest.mark.parametrize(("quotas", "status"), [(NONE_LEFT, 429), (None, 401)], ids=["quota", "capability"])
async def test_a_refused_head_has_no_body_and_the_next_answer_is_the_next_requests(
    quotas: QuotaOptions | None, status: int
) -> None:
    async with gated(**({} if quotas is None else {"quotas": quotas})) as site:
        if quotas is not None:
            await (await site.ask("/open/now")).answer()
        client = site.connect()
        client.send(as_head(get("/now")) + get("/now"))
        await settle()
        answers, rest = split_answers(client.data, {0})

    assert [answer.status for answer in answers] == [status, status]
    assert int(answers[0].headers[b"content-length"]) > 0
    assert answers[1].json()["status"] == status
    assert rest == b""


@pytest.mark.parametrize("kept", [False, True])
async def test_a_refused_request_of_the_old_protocol_is_answered_and_its_connection_ends(kept: bool) -> None:
    async with gated() as site:
        client = site.connect()
        client.send(as_old(get("/now", *(["Connection: keep-alive"] if kept else []))))
        await settle()
        answers, _ = split_answers(client.data, set())

    assert [answer.status for answer in answers] == [401]
    assert client.ended or kept


async def test_refusals_among_pipelined_requests_keep_their_place() -> None:
    async with gated() as site:
        field = await site.known()
        client = site.connect()
        client.send(get("/later", field) + get("/now") + as_head(get("/now")) + post("/now", b"x") + get("/now", field))
        await settle()
        early = client.data
        site.work.answer()
        await settle()
        answers, rest = split_answers(client.data, {2})

    assert early == b""
    assert [answer.status for answer in answers] == [200, 401, 401, 401, 200]
    assert rest == b""


@pytest.mark.parametrize(
    "given",
    ["", "0", "-1", "+5", "1e3", "1.5", "0x10", "5 5", "5,5", "\u0663", "9" * 40, "inf", "nan", "1_000", "5\t5"],
)
async def test_a_deadline_that_is_none_is_malformed_and_takes_no_slot(given: str) -> None:
    async with gated() as site:
        field = await site.known()
        client = site.connect()
        client.send(get("/later", field, f"X-Deadline-Ms: {given}").decode("latin-1", "replace").encode("utf-8"))
        await settle()
        answers, _ = split_answers(client.data, set())
        held = site.classes()

    assert [answer.status for answer in answers] == [400]
    assert held == {}
    assert site.work.seen == []


async def test_two_deadlines_are_malformed_whatever_each_says() -> None:
    async with gated() as site:
        client = site.connect()
        client.send(get("/later", await site.known(), "X-Deadline-Ms: 500", "X-Deadline-Ms: 900"))
        answer = await client.answer()

    assert answer.status == 400


async def test_a_long_deadline_buys_no_more_than_the_routes_own() -> None:
    async with gated(options={"request_deadline_s": 2.0}) as site:
        client = site.connect()
        client.send(get("/later", await site.known(), "X-Deadline-Ms: 86400000"))
        await settle()
        (request,) = site.work.seen

        assert request.timeout_s == 2.0
