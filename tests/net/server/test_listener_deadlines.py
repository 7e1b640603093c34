"""Deadlines of a connection, in virtual time: headers, bodies, writes, idleness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.kernel.deadline import Deadline, current_deadline, use_deadline
from penstock.kernel.errors import PenstockError
from penstock.kernel.limiter import ByteBudget
from penstock.net.message import Request, Response, StreamResponse
from penstock.net.promise import Promise
from tests.net.server.listener_kit import (
    ROUTES,
    RawClient,
    get,
    post,
    route,
    serving,
    settle,
)


async def test_a_header_byte_a_second_is_cut_at_the_read_deadline_with_408() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as site:
        client = site.connect()
        began = loop.time()
        for byte in get():
            if client.ended:
                break
            client.send(bytes([byte]))
            await asyncio.sleep(1.0)
        answers = await client.gone()
        elapsed = loop.time() - began
        timeouts = site.count("io_timeouts_total", op="read")

    assert [(answer.status, answer.json()["op"]) for answer in answers] == [(408, "read")]
    assert 5.0 <= elapsed <= 7.0
    assert timeouts == 1


async def test_the_header_deadline_starts_at_the_first_byte_even_if_it_is_a_blank_line() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as site:
        client = site.connect()
        await asyncio.sleep(30)
        began = loop.time()
        client.send(b"\r\n")
        answers = await client.gone()
        elapsed = loop.time() - began

    assert [answer.status for answer in answers] == [408]
    assert 5.0 <= elapsed <= 5.2


CHUNKED_HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_body_that_stalls_is_408_and_one_that_comes_in_pieces_in_time_is_served() -> None:
    body = b'{"text":"slow"}'
    async with serving() as site:
        stalled, steady = site.connect(), site.connect()
        stalled.send(post("/echo", body)[:-5])
        for piece in (post("/echo", body)[:-5], b"l", b"o", b"w", b'"', b"}"):
            steady.send(piece)
            await asyncio.sleep(0.9)
        served = await steady.answer()
        answers = await stalled.gone()

    assert served.status == 200
    assert [answer.status for answer in answers] == [408]


@pytest.mark.parametrize("streams", [False, True], ids=["one answer", "a streamed answer"])
async def test_a_streamed_body_that_stalls_ends_the_connection_and_its_answer_says_so(streams: bool) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        for piece in (b"cut", b" short"):
            await asyncio.sleep(0)
            yield piece

    async def reading(request: Request) -> Response | StreamResponse:
        try:
            async for _piece in request.stream():
                await asyncio.sleep(0)
        except PenstockError:
            if not streams:
                raise
        return StreamResponse(200, nothing())

    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    routes = [route(reading, "POST", stream_body=True), route(lambda _r: reply, path="/first")]
    async with serving(routes) as site:
        client = site.connect()
        client.send(get("/first") + post("/it", b"x" * 1000)[:-500])
        await asyncio.sleep(6.0)
        reply.set_result({"n": 1})
        first, last = await client.gone()

    assert (first.status, last.status) == (200, 200 if streams else 408)
    assert b"connection" not in first.headers, "another answer follows"
    assert last.headers[b"connection"] == b"close"


async def drip(client: RawClient, piece: bytes, every_s: float) -> float:
    """Send the same piece again and again until the other side has enough; return how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not client.ended and loop.time() - began < 1000:
        client.send(piece)
        await asyncio.sleep(every_s)
    return loop.time() - began


@pytest.mark.parametrize(
    ("head", "piece", "limit_s"),
    [
        (post("/echo", b"x" * (1 << 20))[: -(1 << 20)], b"x", 5 + 64),
        (post("/echo", b"x" * 20)[:-20], b"x", 5),
        (CHUNKED_HEAD, b"1\r\nx\r\n", 5),
    ],
)
async def test_a_body_that_trickles_has_a_deadline_for_all_of_it(head: bytes, piece: bytes, limit_s: float) -> None:
    async with serving() as site:
        client = site.connect()
        client.send(head)
        elapsed = await drip(client, piece, 4.0)
        answers = await client.gone()

    assert [(answer.status, answer.json()["op"]) for answer in answers] == [(408, "read")]
    assert limit_s <= elapsed <= limit_s + 8.2
    assert answers[0].json()["budget_ms"] == pytest.approx(limit_s * 1000, abs=10)


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_large_body_that_keeps_the_lowest_rate_is_served(framing: str) -> None:
    body = b'{"text":"' + b"x" * (600 * 1024) + b'"}'
    pieces = [body[at : at + 17_000] for at in range(0, len(body), 17_000)]
    async with serving() as site:
        client = site.connect()
        client.send(CHUNKED_HEAD if framing == "chunked" else post("/echo", body)[: -len(body)])
        for piece in pieces:
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if framing == "chunked" else piece)
            await asyncio.sleep(1.0)
        if framing == "chunked":
            client.send(b"0\r\n\r\n")
        answer = await client.answer()

    assert answer.status == 200


async def test_a_client_kept_waiting_for_its_100_is_not_late() -> None:
    body = b'{"text":"hi"}'
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([*ROUTES, route(lambda _request: reply)]) as site:
        client = site.connect()
        client.send(get("/it") + post("/echo", body, "Expect: 100-continue")[: -len(body)])
        await asyncio.sleep(20.0)
        reply.set_result({"n": 1})
        answers = await client.answers(2)
        await asyncio.sleep(4.0)
        client.send(body)
        answers += await client.answers(1)

    assert [answer.status for answer in answers] == [200, 100, 200]


async def test_an_idle_connection_is_closed_without_a_word_at_the_idle_deadline() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as site:
        client = site.connect()
        client.send(get())
        await client.answer()
        began = loop.time()
        answers = await client.gone()
        elapsed = loop.time() - began

    assert answers == []
    assert client.data == b""
    assert 60.0 <= elapsed <= 60.2


async def test_a_request_before_the_idle_deadline_moves_it() -> None:
    async with serving() as site:
        client = site.connect()
        for _ in range(5):
            await asyncio.sleep(50.0)
            client.send(get())
            answer = await client.answer()
            assert answer.status == 200


async def test_a_client_that_does_not_read_is_cut_at_the_write_deadline() -> None:
    async with serving([route(lambda _request: Response(200, b"x" * (4 << 20)))]) as site:
        client, _connection, transport = site.join()
        transport.pause_reading()
        client.send(get("/it"))
        await asyncio.sleep(4.9)
        early = site.count("io_timeouts_total", op="write")
        await asyncio.sleep(0.4)
        late = site.count("io_timeouts_total", op="write")
        transport.resume_reading()
        await client.gone()

    assert (early, late) == (0, 1)
    assert site.listener.inflight == 0


async def test_while_the_client_does_not_read_nothing_more_is_handled() -> None:
    handled = 0

    def large(_request: Request) -> Response:
        nonlocal handled
        handled += 1
        return Response(200, b"x" * 200_000)

    async with serving([route(large)]) as site:
        client, _connection, transport = site.join()
        transport.pause_reading()
        client.send(get("/it") * 20)
        await settle(100)
        before = handled
        transport.resume_reading()
        answers = await client.answers(20)

    assert before < 5
    assert len(answers) == 20


async def test_a_waiting_answer_is_no_idleness_and_no_slow_read() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    async with serving([route(lambda _request: reply, deadline_s=300)]) as site:
        client = site.connect()
        client.send(get("/it"))
        await asyncio.sleep(200.0)
        reply.set_result({"n": 1})
        answer = await client.answer()

    assert answer.status == 200


async def test_unsent_answers_count_against_the_byte_budget_and_go_first_when_it_is_used_up() -> None:
    budget = ByteBudget(3 << 20)
    async with serving([route(lambda _request: Response(200, b"x" * (1 << 20)))], budget=budget) as site:
        first, _, first_transport = site.join()
        second, _, second_transport = site.join()
        for client, transport in ((first, first_transport), (second, second_transport)):
            transport.pause_reading()
            client.send(get("/it"))
        await settle()
        held = budget.in_use
        second_transport.resume_reading()
        await second.gone()
        first_transport.resume_reading()
        answer = await first.answer()

    assert 900_000 < held < 1.5 * (1 << 20)
    assert answer.status == 200
    assert budget.in_use == 0


@pytest.mark.parametrize("fields", [(), ("Connection: close",)])
async def test_after_the_last_answer_a_silent_client_is_let_go_within_a_second(fields: tuple[str, ...]) -> None:
    loop = asyncio.get_running_loop()
    async with serving(ROUTES) as site:
        client = site.connect()
        client.send(get("/hello", *fields) if fields else b"GET  / HTTP/1.1\r\n\r\n")
        began = loop.time()
        await client.gone()
        await asyncio.sleep(1.2)
        held = site.count("open_connections")
        elapsed = loop.time() - began

    assert held == 0
    assert elapsed <= 2.4


async def test_an_answer_that_waits_behind_a_slower_one_never_becomes_a_504() -> None:
    reply: asyncio.Future[dict[str, int]] = asyncio.get_running_loop().create_future()
    slow = route(lambda _request: reply, deadline_s=30.0)
    async with serving([*ROUTES, slow], {"request_deadline_s": 1.0}) as site:
        client = site.connect()
        client.send(get("/it") + get("/hello"))
        await asyncio.sleep(5.0)
        inflight = site.listener.inflight
        reply.set_result({"n": 1})
        answers = await client.answers(2)

    assert inflight == 1
    assert [answer.status for answer in answers] == [200, 200]


async def its_deadline(_request: Request) -> dict[str, float]:
    """Tell which deadline the handler is under."""
    await asyncio.sleep(0)
    deadline = current_deadline()
    assert deadline is not None
    return {"budget_s": deadline.budget_s}


async def test_a_request_is_never_under_the_deadline_of_the_one_before_it() -> None:
    go = asyncio.Event()

    async def first(request: Request) -> dict[str, int]:
        await go.wait()
        return {"bytes": sum([len(piece) async for piece in request.stream()])}

    routes = [
        route(first, "POST", path="/first", stream_body=True, body_bytes_max=1 << 20, deadline_s=1.0),
        route(its_deadline, path="/second"),
        route(lambda _r: {"deadline": repr(current_deadline())}, path="/third"),
    ]
    data = post("/first", b"x" * 200_000) + get("/second") + get("/third")
    async with serving(routes) as site:
        client, connection, _transport = site.join()
        client.send(data[:150_000])
        await settle(200)
        # What a transport had in hand when it was told to pause: the handler, making room, is the one who reads on.
        connection.inbox.reader.receive(data[150_000:])
        go.set()
        whole, second, third = await client.answers(3)

    assert whole.json() == {"bytes": 200_000}
    assert second.json() == {"budget_s": 30.0}
    assert third.json() == {"deadline": "None"}, "a handler that is no coroutine asks for its request's own"


async def test_what_follows_an_answer_is_not_under_the_deadline_of_whoever_brought_it() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"slow", b" but", b" whole"):
            yield piece
            await asyncio.sleep(1.0)

    promises: list[Promise] = []

    def promise(_request: Request) -> Promise:
        promises.append(Promise())
        return promises[-1]

    routes = [
        route(promise, path="/promise"),
        route(lambda _r: StreamResponse(200, pieces()), path="/stream"),
        route(its_deadline, path="/last"),
    ]
    async with serving(routes) as site:
        client = site.connect()
        # As many as may wait on a connection: the last is read when the first is answered.
        client.send(get("/promise") + get("/stream") + get("/promise") * 6 + get("/last"))
        await settle()
        with use_deadline(Deadline.after(1.5, asyncio.get_running_loop().time())):
            for each in promises:
                each.resolve({"kept": True})
        _first, streamed, *_others, last = await client.answers(9)

    assert streamed.body == b"slow but whole"
    assert last.json() == {"budget_s": 30.0}


async def test_a_stream_that_follows_an_answer_cut_by_its_deadline_has_its_own_time() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"late", b" but", b" whole"):
            yield piece
            await asyncio.sleep(1.0)

    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    routes = [
        route(lambda _r: never, path="/cut", deadline_s=2.0),
        route(lambda _r: StreamResponse(200, pieces()), path="/stream"),
    ]
    async with serving(routes) as site:
        client = site.connect()
        # The listener's one timer is armed by somebody whose own time is nearly over.
        with use_deadline(Deadline.after(2.5, asyncio.get_running_loop().time())):
            site.listener.connection()._core.wheel.watch(armed := Armed())
        client.send(get("/cut") + get("/stream"))
        cut, streamed = await client.answers(2)

    assert (cut.status, streamed.body, armed.expired) == (504, b"late but whole", True)


class Armed:
    """Something that is due before everything else."""

    def __init__(self) -> None:
        self.due = asyncio.get_running_loop().time() + 0.1
        self.slot = 0
        self.expired = False

    def expire(self, now: float) -> None:
        """Be watched again, until later."""
        self.expired = True
        self.due += 1.0
