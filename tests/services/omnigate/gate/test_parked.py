"""What holds a slot and what does not: slow bodies, long polls, streams; and every end gives it back."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.net.message import Request, StreamResponse
from penstock.net.server.pausing import QUIET_S
from penstock.services.omnigate.gate.classes import AdmissionRule
from tests.net.server.listener_kit import (
    get,
    post,
    route,
    settle,
)
from tests.services.omnigate.gate.kit import gated, json_answer


async def test_a_slow_body_holds_no_slot_while_it_arrives() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        slow = site.connect()
        slow.send(post("/later", b"x" * 10, field)[:-10])
        await settle()
        parked = site.gate.queue.parked
        other = await site.ask("/now", field)
        served = await other.answer()
        slow.send(b"x" * 10)
        await settle()
        running = site.classes()
        site.work.answer()
        answer = await slow.answer()

    assert parked == 1
    assert (served.status, answer.status) == (200, 200)
    assert running == {"authed": (0, 1)}


async def test_a_body_that_came_late_waits_for_a_slot_like_everybody() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        slow = site.connect()
        slow.send(post("/later", b"x" * 10, field)[:-10])
        await settle()
        await site.ask("/later", field)
        slow.send(b"x" * 10 + get("/healthz"))
        await settle()
        early = slow.data
        handled = len(site.work.seen)
        site.work.answer()
        await settle()
        site.work.answer()
        answers = await slow.answers(2)

    assert early == b""
    assert handled == 1
    assert [answer.status for answer in answers] == [200, 200]
    assert site.work.bodies[1] == b"x" * 10


async def test_512_idle_long_polls_leave_the_gateway_free() -> None:
    wakes: list[asyncio.Future[None]] = []

    async def poll(request: Request) -> dict[str, int]:
        ticket = request.ticket
        assert ticket is not None
        if not ticket.park():
            return {"messages": 0}
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wakes.append(wake)
        await wake
        slot = ticket.unpark()
        if slot is not None:
            await slot
        return {"messages": 1}

    more = {route(poll, path="/poll", deadline_s=30.0): AdmissionRule(op="get", long_poll=True)}
    async with gated(more=more, max_inflight=512, max_parked=2048, options={"max_conns_per_ip": 1024}) as site:
        field = await site.known()
        polls = [site.connect() for _ in range(512)]
        for client in polls:
            client.send(get("/poll", field))
        await settle(200)
        idle = site.classes()
        parked = site.gate.queue.parked
        served = await (await site.ask("/now", field)).answer()
        over = await (await site.ask("/poll", field)).answer()
        for wake in wakes:
            wake.set_result(None)
        answers = [await client.answer() for client in polls]

    assert idle == {}
    assert parked == 512
    assert served.status == 200
    # A quarter of 2048 is one tenant's: its next poll is answered at once, empty.
    assert over.json() == {"messages": 0}
    assert {answer.body for answer in answers} == {b'{"messages":1}'}


async def test_parked_requests_never_steer_the_limit_nor_cost_by_time() -> None:
    async def poll(request: Request) -> dict[str, int]:
        assert request.ticket is not None
        assert request.ticket.park()
        await asyncio.sleep(20.0)
        assert request.ticket.unpark() is None
        return {"messages": 1}

    more = {route(poll, path="/poll", deadline_s=30.0): AdmissionRule(op="get", long_poll=True)}
    async with gated(more=more, adaptive=True) as site:
        field = await site.known()
        client = await site.ask("/poll", field)
        answer = await client.answer()
        lane = site.gate._lanes[next(iter(more))]

        assert answer.status == 200
        assert lane.latency.count == 0
        assert lane.cost.average < 1024
        assert site.gate.queue.classes["authed"].tenants["acme"].deficit == 0


async def test_a_streamed_answer_gives_its_slot_back_while_it_waits_and_its_bytes_are_charged() -> None:
    pieces: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def chunks():  # type: ignore[no-untyped-def]
        yield b"a" * 100_000
        await pieces
        yield b"b" * 100_000

    more = {route(lambda _r: StreamResponse(200, chunks()), path="/stream"): AdmissionRule(op="get")}
    async with gated(more=more) as site:
        field = await site.known()
        client = await site.ask("/stream", field)
        await settle()
        during = site.classes()
        await asyncio.sleep(2 * QUIET_S)
        quiet = site.classes(), site.gate.queue.parked
        pieces.set_result(None)
        await settle()
        again = site.classes(), site.gate.queue.parked
        answer = await client.answer()
        await settle()
        lane = site.gate._lanes[next(iter(more))]

        assert during == {"authed": (0, 1)}
        assert quiet == ({}, 1)
        assert again in (({"authed": (0, 1)}, 0), ({}, 0))
        assert len(answer.body) == 200_000
        assert lane.cost.average >= 200_000 / 16
        assert site.classes() == {}


async def test_a_client_that_goes_in_the_middle_of_a_stream_of_known_length_is_no_failure() -> None:
    gone: list[Any] = []

    async def chunks():  # type: ignore[no-untyped-def]
        yield b"a"
        gone[0].abort()
        yield b"b"

    more = {route(lambda _r: StreamResponse(200, chunks(), length=3), path="/stream"): AdmissionRule(op="get")}
    async with gated(more=more) as site:
        client, connection, _ = site.join()
        gone.append(connection._transport)
        client.send(get("/stream", await site.known()))
        await settle()

        labels = {"worker": "listener", "type": "RuntimeError"}
        failures = site.inventory.metrics.counter("job_failures_total", "Jobs that raised.", **labels)

        assert failures.value == 0
        assert site.classes() == {}


async def test_a_streamed_body_that_is_slow_to_come_holds_no_slot_and_does_not_steer_the_limit() -> None:
    async def take(request: Request) -> dict[str, int]:
        return {"bytes": sum([len(piece) async for piece in request.stream()])}

    more = {route(take, "POST", path="/take", stream_body=True): AdmissionRule(op="put")}
    async with gated(more=more, max_inflight=1) as site:
        field = await site.known()
        slow = site.connect()
        slow.send(post("/take", b"x" * 10, field)[:-10])
        await asyncio.sleep(2 * QUIET_S)
        served = await (await site.ask("/now", field)).answer()
        slow.send(b"x" * 10)
        answer = await slow.answer()
        lane = site.gate._lanes[next(iter(more))]

        assert served.status == 200
        assert answer.json() == {"bytes": 10}
        assert lane.latency.count == 0


async def test_a_whole_answer_that_is_no_json_is_settled_too() -> None:
    more = {route(json_answer, path="/plain"): AdmissionRule(op="get")}
    async with gated(more=more) as site:
        client = await site.ask("/plain", await site.known())

        assert (await client.answer()).status == 201
        assert site.classes() == {}


async def test_a_body_that_is_refused_after_admission_gives_its_slot_back() -> None:
    async with gated(options={"body_bytes_max": 100}) as site:
        field = await site.known()
        client = site.connect()
        client.send(post("/later", b"x" * 200, field))
        answer = await client.answer()
        after = site.classes()

    assert answer.status == 413
    assert after == {}


async def test_a_body_whose_connection_an_earlier_answer_ended_gives_back_what_it_held() -> None:
    async with gated() as site:
        field = await site.known()
        client = site.connect()
        client.send(get("/later", field) + post("/later", b"x" * 10, field)[:-10])
        await settle()
        before = (site.gate.queue.parked, site.listener.inflight)
        site.listener.stop_intake()
        site.work.answer()
        answers = await client.gone()
        after = (site.gate.queue.parked, site.listener.inflight)

    assert before == (1, 2)
    assert [answer.headers[b"connection"] for answer in answers] == [b"close"]
    assert after == (0, 0)


async def test_a_handler_that_fails_gives_its_slot_back() -> None:
    def broken(_request: Request) -> None:
        raise ZeroDivisionError

    more = {route(broken, path="/broken"): AdmissionRule(op="get")}
    async with gated(more=more) as site:
        client = await site.ask("/broken", await site.known())

        assert (await client.answer()).status == 500
        assert site.classes() == {}
