"""A listener without a gate: every request holds the ticket that does nothing."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net.message import Request, StreamResponse
from penstock.net.server.admission import HELD
from penstock.net.server.ticket import NO_TICKET
from tests.net.server.listener_kit import get, post, route, serving
from tests.net.server.test_listener_streams import count_body, numbers


async def test_without_a_gate_a_handler_may_park_stream_and_work_as_if_there_were_one() -> None:
    async def waits(request: Request) -> dict[str, object]:
        parked, slot = request.ticket.park(), request.ticket.unpark()
        request.ticket.worked(1.0)
        await asyncio.sleep(1)
        return {"parked": parked, "slot": slot, "seen": request.ticket.bytes_seen}

    routes = [
        route(waits, path="/waits"),
        route(count_body, "POST", path="/up", stream_body=True, body_bytes_max=1 << 20),
        route(lambda _r: StreamResponse(200, numbers(3, 10)), path="/down"),
    ]
    async with serving(routes) as site:
        client = site.connect()
        client.send(get("/waits") + post("/up", b"x" * 200_000) + get("/down"))
        answers = await client.answers(3)

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert answers[0].json() == {"parked": True, "slot": None, "seen": 0}
    assert NO_TICKET.bytes_seen == 0


async def test_a_request_cannot_be_held_without_a_ticket_to_hold_it_by() -> None:
    async with serving([route(lambda _r: {})], admission=lambda _request: HELD) as site:
        client = site.connect()
        client.send(get("/it"))
        await client.gone()

    with pytest.raises(RuntimeError, match="held without a ticket"):
        NO_TICKET.waiter = lambda _refusal: None
