"""An address without a good token gets 401 until its quota is empty, then 429; good tokens never count."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.errors import Unauthenticated
from penstock.net.bearer import admit_bearers, bearer
from penstock.net.message import Request
from penstock.net.server.stranger_quota import STRANGERS_DEPTH, STRANGERS_RPS, UNKNOWN_RPS, known_by
from tests.net.server.listener_kit import Site, get, route, serving

DEPTH = int(STRANGERS_DEPTH)
GOOD, NEW, BAD = ("Authorization: Bearer good",), ("Authorization: Bearer new",), ("Authorization: Bearer bad",)


def judged(request: Request) -> dict[str, str]:
    """Do what a handler does with a token that nobody has judged at the end of the headers."""
    if bearer(request) == "bad":
        raise Unauthenticated("The token is not one of ours.", reason="unknown_key")
    return {"token": bearer(request)}


async def prejudged(request: Request) -> dict[str, str]:
    await asyncio.sleep(0)
    return judged(request)


ROUTES = [
    route(judged, path="/now"),
    route(prejudged, path="/later"),
    route(lambda _r: {"open": True}, path="/open", open=True),
]


class Memory:
    """A verifier's memory: it knows one good token and one bad one."""

    def digest(self, token: str) -> bytes:
        if token == "garbage":
            raise Unauthenticated("This is no token.", reason="malformed")
        return token.encode()

    def peek(self, digest: bytes) -> object | None:
        if digest == b"bad":
            raise Unauthenticated("The token is not one of ours.", reason="unknown_key")
        return digest if digest == b"good" else None

    def remembers(self, digest: bytes) -> bool:
        return digest == b"lapsed"


def guarded(**options: object):
    return serving(ROUTES, options, admission=admit_bearers, known=known_by(Memory()))


async def statuses(site: Site, data: list[bytes]) -> list[int]:
    """Ask on one connection, a few requests at a time, as the listener takes them."""
    client, found = site.connect(), []
    for one in data:
        client.send(one)
        found.append((await client.answer()).status)
    return found


async def exhaust(site: Site, request: bytes) -> None:
    assert set(await statuses(site, [request] * DEPTH)) == {401}


@pytest.mark.parametrize("request_", [get("/now"), get("/now", *BAD), get("/later", *BAD)], ids=["none", "bad", "late"])
async def test_strangers_get_401_until_their_quota_is_empty_and_then_429(request_: bytes) -> None:
    async with guarded() as site:
        await exhaust(site, request_)
        client = site.connect()
        client.send(get("/now"))
        answer = await client.answer()

    assert (answer.status, answer.json()["code"], answer.json()["scope"]) == (429, "rate_limited", "strangers")
    assert int(answer.headers[b"retry-after"]) >= 1
    assert site.count("quota_reject_total", kind="strangers") == 1


async def test_a_good_token_is_never_counted_and_never_refused() -> None:
    async with guarded() as site:
        before = await statuses(site, [get("/now", *GOOD)] * (2 * DEPTH))
        await exhaust(site, get("/now"))
        after = await statuses(site, [get("/now", *GOOD)] * 200)

    assert set(before) == set(after) == {200}


async def test_open_routes_are_answered_whatever_the_quota_says() -> None:
    async with guarded() as site:
        await exhaust(site, get("/now"))

        assert await statuses(site, [get("/open"), get("/healthz")]) == [200, 200]


async def test_tokens_that_nobody_knows_yet_have_a_small_budget_in_an_exhausted_address() -> None:
    async with guarded() as site:
        await exhaust(site, get("/now"))
        found = await statuses(site, [get("/now", *NEW)] * (int(UNKNOWN_RPS) + 10))

    assert found.count(200) >= UNKNOWN_RPS
    assert found[-1] == 429


@pytest.mark.parametrize("token", ["bad", "garbage"])
async def test_a_token_that_is_known_to_be_bad_takes_nothing_from_that_budget(token: str) -> None:
    async with guarded() as site:
        await exhaust(site, get("/now"))
        bad = await statuses(site, [get("/now", f"Authorization: Bearer {token}")] * (int(UNKNOWN_RPS) + 10))
        new = await statuses(site, [get("/now", *NEW)] * int(UNKNOWN_RPS))

    assert set(bad) == {429}
    assert set(new) == {200}


async def test_the_quota_fills_again() -> None:
    async with guarded() as site:
        await exhaust(site, get("/now"))
        empty = await statuses(site, [get("/now")])
        await asyncio.sleep(10.5 / STRANGERS_RPS)
        found = await statuses(site, [get("/now")] * 20)

    assert empty == [429]
    assert found.count(401) == 10
    assert found[-1] == 429


async def test_the_quota_is_listed_where_a_service_has_one_and_nowhere_else() -> None:
    async with guarded() as site, serving(ROUTES) as other:
        await exhaust(site, get("/now"))
        rows = {str(row["name"]): row for row in site.inventory.rows()["limits"]}
        plain = {str(row["name"]) for row in other.inventory.rows()["limits"]}

    assert rows["listener.strangers"]["in_use"] == 1
    assert rows["listener.strangers_each"]["capacity"] == STRANGERS_DEPTH
    assert not {name for name in plain if "strangers" in name}
