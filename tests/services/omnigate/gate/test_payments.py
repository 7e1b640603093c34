"""Streams pay as they go.

A long one is a debt while it lasts, takes turns with whoever waits, and buys nothing by its length.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator

import pytest

from penstock.net.message import Request, StreamResponse
from penstock.services.omnigate.fair.costs import LEAST_COST, MOST_COST, RouteCost
from penstock.services.omnigate.fair.entry import Tenant
from penstock.services.omnigate.fair.queue import DEBT_KEPT_S
from penstock.services.omnigate.fair.rounds import DEBT_ROUNDS
from penstock.services.omnigate.gate.classes import AdmissionRule
from penstock.services.omnigate.gate.ticket import PAYMENT_BYTES, GateTicket
from penstock.testing.transport import memory_pair
from tests.net.server.listener_kit import (
    RawClient,
    get,
    post,
    route,
    settle,
)
from tests.services.omnigate.fair.world import KIB, Sender, Unit, make_queue
from tests.services.omnigate.gate.kit import GateSite, gated

MIB = 1 << 20
PIECE = bytes(64 * KIB)


class Streams:
    """Long answers, and what was sent of them."""

    def __init__(self) -> None:
        self.pieces = 0
        self.tickets: list[GateTicket] = []

    def serve(self, request: Request) -> StreamResponse:
        """Stream as many MiB as the path says."""
        assert isinstance(request.ticket, GateTicket)
        self.tickets.append(request.ticket)
        count = int(request.params["mib"]) * 16

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(count):
                self.pieces += 1
                yield PIECE

        return StreamResponse(200, chunks(), length=count * len(PIECE))

    def rules(self) -> dict[object, AdmissionRule]:
        """Serve them for whoever may get."""
        return {route(self.serve, path="/stream/{mib}"): AdmissionRule(op="get")}


class Thrifty(RawClient):
    """Counts what it gets instead of keeping it."""

    seen = 0

    def data_received(self, data: bytes) -> None:
        self.seen += len(data)
        super().data_received(data[:200] if not self.data else b"")


def tenant(site: GateSite, name: str) -> Tenant:
    """Find a tenant of the verified."""
    return site.gate.queue.classes["authed"].tenants[name]


async def test_ten_gigabytes_are_charged_megabyte_by_megabyte() -> None:
    queue, paid = make_queue(limit=2), []
    stream = Unit(Sender("ada"), LEAST_COST, 0, 1e9)
    queue.arrive(stream, queue.classes["authed"], "ada", 0.0)
    for megabytes in range(1, 10_241):
        queue.pay(stream, megabytes * MIB, megabytes / 100)
        paid.append(stream.charged)
    queue.end(stream, 10_240 * MIB)

    assert paid == [megabytes * MIB for megabytes in range(1, 10_241)]
    assert stream.owner.deficit == -DEBT_ROUNDS * stream.owner.quantum


def test_a_stream_without_end_gets_no_more_of_the_slot_than_an_honest_neighbour() -> None:
    queue, got = make_queue(limit=1), {"streamer": 0, "honest": 0}
    class_ = queue.classes["authed"]
    stream = Unit(Sender("streamer"), LEAST_COST, 0, 1e9)
    queue.arrive(stream, class_, "streamer", 0.0)
    for _ in range(4):
        queue.arrive(Unit(Sender("honest"), 64 * KIB, 0, 1e9), class_, "honest", 0.0)
    running: Unit = stream
    for step in range(4000):
        now = step / 100
        if running is stream:
            got["streamer"] += MIB
            queue.pay(stream, got["streamer"], now)
            queue.park(stream)
            queue.unpark(stream)
        else:
            got["honest"] += 64 * KIB
            queue.end(running, 64 * KIB)
            queue.arrive(Unit(Sender("honest"), 64 * KIB, 0, 1e9), class_, "honest", now)
        entry = queue.next()
        assert isinstance(entry, Unit)
        running = entry

    assert got["streamer"] / got["honest"] == pytest.approx(1.0, rel=0.1)


def test_what_a_stream_owes_is_not_forgotten_while_it_goes_on() -> None:
    queue = make_queue(limit=8)
    class_ = queue.classes["authed"]
    stream = Unit(Sender("ada"), LEAST_COST, 0, 1e9)
    queue.arrive(stream, class_, "ada", 0.0)
    for second in range(1, 56):
        queue.pay(stream, second * MIB, float(second))
        if not second % 11:
            # Longer ago than a debt is kept, were it not for the stream.
            queue.arrive(Unit(Sender("ada"), LEAST_COST, 0, 1e9), class_, "ada", second + 0.5)
    debt = stream.owner.deficit
    queue.arrive(Unit(Sender("ada"), LEAST_COST, 0, 1e9), class_, "ada", 60 + DEBT_KEPT_S)

    assert debt < -32 * stream.owner.quantum
    assert stream.owner.deficit >= -64 * KIB


def test_a_giant_teaches_its_route_no_more_than_the_most_a_request_may_cost() -> None:
    cost = RouteCost()
    for _ in range(20):
        cost.learn(0, 2000)
    cost.learn(0, 10_240 * MIB)

    assert cost.expect(0) < MOST_COST // 10


async def test_a_stream_is_charged_while_it_runs_and_not_twice_at_its_end() -> None:
    streams = Streams()
    async with gated(more=streams.rules()) as site:
        field = await site.known(tenant="ada")
        client = await ask(site, "/stream/8", field)
        while client.seen < 8 * MIB:
            await settle()
        owed = tenant(site, "ada").deficit
        charged = streams.tickets[0].charged

    assert charged == pytest.approx(8 * MIB, rel=0.01)
    assert owed <= -DEBT_ROUNDS * 64 * KIB + 64 * KIB


async def test_whoever_waits_has_a_turn_after_every_payment_and_not_only_after_the_stream() -> None:
    streams = Streams()
    async with gated(more=streams.rules(), max_inflight=1) as site:
        ada, bob = await site.known(tenant="ada"), await site.known(tenant="bob")
        client = await ask(site, "/stream/32", ada)
        served_at: list[int] = []
        for _ in range(8):
            light = await site.ask("/now", bob)
            assert (await light.answer()).status == 200
            served_at.append(streams.pieces)
        while client.seen < 32 * MIB:
            await settle()

    # The last one was served long before the end: a payment's worth lies between two of them, and what they took to
    # ask.
    steps = [after - before for before, after in zip([0, *served_at], served_at, strict=False)]
    assert served_at[-1] < 32 * 16
    assert max(steps) * len(PIECE) < 3 * PAYMENT_BYTES


async def test_who_has_parked_all_he_may_takes_turns_all_the_same() -> None:
    streams = Streams()
    async with gated(more=streams.rules(), max_inflight=1, max_parked=4) as site:
        ada, bob = await site.known(tenant="ada"), await site.known(tenant="bob")
        slow = site.connect()
        slow.send(post("/later", bytes(10), ada)[:-1])
        await settle()
        parked = site.gate.queue.parked
        client = await ask(site, "/stream/16", ada)
        light = await (await site.ask("/now", bob)).answer()
        sent = streams.pieces
        while client.seen < 16 * MIB:
            await settle()

    # A quarter of four is one: the slow body has it.
    assert (parked, light.status) == (1, 200)
    assert sent < 4 * 16


async def test_a_body_is_charged_also_when_its_sender_leaves_before_it_was_looked_at() -> None:
    async with gated(max_inflight=1) as site:
        ada, bob = await site.known(tenant="ada"), await site.known(tenant="bob")
        leaver = site.connect()
        head = f"POST /later HTTP/1.1\r\nHost: localhost\r\n{ada}\r\nTransfer-Encoding: chunked\r\n\r\n"
        leaver.send(head.encode() + b"%x\r\n%b" % (900 * KIB, bytes(900 * KIB)))
        await settle(50)
        await site.ask("/later", bob)
        leaver.send(b"\r\n0\r\n\r\n")
        await settle()
        waiting = site.gate.queue.waiting
        leaver.transport.abort()
        await settle()
        owed = tenant(site, "ada").deficit

    assert waiting == 1
    assert owed <= -(900 - 64) * KIB


async def test_alone_a_stream_never_gives_its_slot_up() -> None:
    streams = Streams()
    async with gated(more=streams.rules(), max_inflight=1) as site:
        client = await ask(site, "/stream/8", await site.known(tenant="ada"))
        while client.seen < 8 * MIB:
            assert site.gate.queue.parked == 0
            await settle()

    assert streams.pieces == 8 * 16


async def test_a_client_that_leaves_while_its_stream_waits_for_a_turn_leaves_nothing_behind() -> None:
    streams = Streams()
    async with gated(more=streams.rules(), max_inflight=1) as site:
        ada, bob = await site.known(tenant="ada"), await site.known(tenant="bob")
        client = await ask(site, "/stream/32", ada)
        waiting = await site.ask("/later", bob)
        while site.classes() != {"authed": (0, 1)} or not site.gate.queue.parked:
            await settle()
        client.transport.abort()
        await settle()
        left = (site.gate.queue.parked, site.gate.queue.waiting)
        site.work.answer()
        answer = await waiting.answer()

    assert left == (0, 0)
    assert answer.status == 200


async def test_a_body_of_unknown_length_is_charged_for_what_came() -> None:
    async with gated() as site:
        field = await site.known(tenant="ada")
        client = site.connect()
        head = f"POST /now HTTP/1.1\r\nHost: localhost\r\n{field}\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (200 * KIB, bytes(200 * KIB)))
        assert (await client.answer()).status == 200

        # Two turns were its own, because nobody waited: before the body was read, and after.
        assert tenant(site, "ada").deficit <= -(200 - 2 * 64) * KIB


async def test_a_compressed_stream_is_charged_for_what_comes_out_of_it() -> None:
    async def take(request: Request) -> dict[str, int]:
        return {"bytes": sum([len(piece) async for piece in request.stream()])}

    more = {route(take, "POST", path="/take", stream_body=True): AdmissionRule(op="put")}
    async with gated(more=more) as site:
        field = await site.known(tenant="ada")
        data = bytes(800 * KIB)
        packed = gzip.compress(data[: 400 * KIB] + random.Random(1).randbytes(100 * KIB) + data[400 * KIB :])
        client = site.connect()
        client.send(post("/take", packed, field, "Content-Encoding: gzip"))
        answer = await client.answer()

        assert answer.json() == {"bytes": 900 * KIB}
        assert tenant(site, "ada").deficit <= -(900 - 2 * 64) * KIB


async def ask(site: GateSite, path: str, field: str) -> Thrifty:
    """Send a GET whose answer is only counted."""
    client = Thrifty()
    memory_pair(client, site.listener.connection())
    site.clients.append(client)
    client.send(get(path, field))
    await settle()
    return client
