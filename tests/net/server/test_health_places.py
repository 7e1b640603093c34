"""A full listener can still be asked how it is: a few places beyond the cap serve the health pages, and only those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.net.server.caps import HEALTH_HEAD_S, HEALTH_PLACES, HEALTH_PLACES_EACH
from penstock.testing.transport import memory_pair
from tests.net.server.certificates import make_certificate, trusting_context
from tests.net.server.listener_kit import BOTH_LOOPS, RawClient, Site, get, post, route, serving, settle

TCP = {"host": "127.0.0.1"}


@asynccontextmanager
async def full(**options: object) -> AsyncIterator[Site]:
    """Run a listener whose one place is held by somebody who waits for an answer."""
    never = route(lambda _r: asyncio.get_running_loop().create_future())
    async with serving([never], {"max_conns": 1, "max_conns_per_ip": 0, **options}) as site:
        site.connect().send(get("/it"))
        await settle()
        yield site


def for_health(site: Site) -> int:
    (row,) = [row for row in site.inventory.rows()["limits"] if row["name"] == "listener.health_conns"]
    assert row["capacity"] == HEALTH_PLACES
    return int(str(row["in_use"]))


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/version", 429), ("/it", 429)])
async def test_beyond_the_cap_only_health_pages_are_served_and_the_answer_ends_the_connection(
    path: str, status: int
) -> None:
    async with full() as site:
        client = site.connect()
        client.send(get(path) + get("/healthz"))
        (answer,) = await client.gone()

    assert (answer.status, answer.headers[b"connection"]) == (status, b"close")
    assert status == 200 or answer.json()["limit"] == "max_conns"


async def test_a_request_with_a_body_is_refused_beyond_the_cap_whatever_it_asks_for() -> None:
    async with full() as site:
        client = site.connect()
        client.send(post("/healthz", b"{}"))
        (answer,) = await client.gone()

    assert answer.status in {405, 429}


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHo"], ids=["nothing", "half a head"])
async def test_who_has_not_asked_within_a_second_is_refused(sent: bytes) -> None:
    async with full() as site:
        client = site.connect()
        client.send(sent)
        await asyncio.sleep(HEALTH_HEAD_S - 0.1)
        early, held = client.data, for_health(site)
        await asyncio.sleep(0.2)
        late = for_health(site)
        (answer,) = await client.gone()

    assert (early, held, late) == (b"", 1, 0)
    assert (answer.status, answer.json()["limit"]) == (429, "max_conns")


async def test_one_address_holds_only_a_few_of_the_places_and_the_rest_is_refused_at_once() -> None:
    async with full() as site:
        for _ in range(HEALTH_PLACES_EACH):
            site.connect()
        await settle()
        client = site.connect()
        await settle()
        refused, held = client.data, for_health(site)

    assert held == HEALTH_PLACES_EACH
    assert refused.startswith(b"HTTP/1.1 429 ")


class StayingClient(RawClient):
    """A client that leaves its own side open after the last answer, so that the listener lingers."""

    def eof_received(self) -> bool:
        super().eof_received()
        return True


async def test_a_place_is_free_again_when_its_answer_is_written() -> None:
    async with full() as site:
        client, connection = StayingClient(), site.listener.connection()
        memory_pair(client, connection)
        client.send(get("/healthz"))
        await settle()
        lingers, held = client.lost is None and client.ended, for_health(site)
        client.transport.abort()

    assert (lingers, held) == (True, 0)


async def test_an_address_above_its_own_cap_gets_no_place() -> None:
    never = route(lambda _r: asyncio.get_running_loop().create_future())
    async with serving([never], {"max_conns": 9, "max_conns_per_ip": 1}) as site:
        site.connect().send(get("/it"))
        await settle()
        client = site.connect()
        (answer,) = await client.gone()

    assert answer.json()["limit"] == "max_conns_per_ip"


async def test_a_listener_that_closes_ends_these_connections_too() -> None:
    async with full() as site:
        client = site.connect()
        await settle()
        await site.listener.close()
        await client.gone()

    assert client.ended


@BOTH_LOOPS
async def test_health_is_answered_over_tls_too(loop_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not how fast the handshake is, but that there is one: the machine may be busy with others.
    for module in ("tls_accept", "connection"):
        monkeypatch.setattr(f"penstock.net.server.{module}.HEALTH_HEAD_S", 60.0)
    options = {**TCP, **make_certificate(tmp_path)}
    async with full(**options) as site:
        client = await site.dial(ssl=trusting_context())
        client.send(get("/healthz"))
        (answer,) = await client.gone()

    assert answer.status == 200
