"""Answers that a callback brings: promises are told at once, kept once, and let go with whoever waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.kernel.errors import Conflict, PenstockError
from penstock.net.message import (
    RelayedResponse,
    Request,
    Response,
    StreamResponse,
)
from penstock.net.promise import Promise
from penstock.net.server.wheel import NEVER
from tests.net.server.listener_kit import (
    get,
    route,
    serving,
    settle,
)


class Kept(Promise):
    """A promise a test keeps by hand."""

    op = "rpc"
    made: list[Kept]

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = 0

    def cancel(self) -> None:
        super().cancel()
        self.cancelled += 1


class Desk:
    """A handler that promises."""

    def __init__(self) -> None:
        self.promises: list[Kept] = []

    def __call__(self, request: Request) -> Kept:
        self.promises.append(Kept())
        return self.promises[-1]


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"a": 1}, 200),
        (None, 204),
        (Response(201, b"{}"), 201),
        (RelayedResponse(202, b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nX-Corr-ID: ", b"hi"), 202),
        (Conflict(), 409),
        (ValueError("a bug"), 500),
        (Promise(), 500),
    ],
)
async def test_a_kept_promise_is_the_answer_in_the_same_turn(value: object, status: int) -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        desk.promises[0].resolve(value)
        assert site.listener.inflight == 0

        assert (await client.answer()).status == status


async def test_promises_are_answered_in_the_order_of_their_requests() -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it") * 3)
        await settle()
        for number in (2, 0, 1):
            desk.promises[number].resolve({"number": number})

        assert [answer.json()["number"] for answer in await client.answers(3)] == [0, 1, 2]


async def test_a_promise_past_its_deadline_is_let_go_and_named() -> None:
    desk = Desk()
    async with serving([route(desk, deadline_s=1.0)]) as site:
        client = site.connect()
        client.send(get("/it"))
        answer = await client.answer()
        desk.promises[0].resolve({"late": True})
        await settle()

        assert (answer.status, answer.json()["op"], answer.json()["budget_ms"]) == (504, "rpc", 1000)
        assert desk.promises[0].cancelled == 1
        assert (client.data, site.count("io_timeouts_total", op="rpc")) == (b"", 1)


async def test_a_client_that_goes_lets_its_promises_go() -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        client = site.connect()
        client.send(get("/it") * 2)
        await settle()
        client.transport.abort()
        await settle()

        assert [promise.cancelled for promise in desk.promises] == [1, 1]
        assert site.listener.inflight == 0
        desk.promises[0].resolve({"late": True})


async def test_a_promise_is_kept_once() -> None:
    promise, told = Kept(), []
    promise.follow(told.append)
    promise.resolve(1)
    promise.resolve(2)
    promise.cancel()

    assert (told, promise.result) == ([1], 1)


async def test_a_clients_deadline_counts_on_every_route() -> None:
    desk = Desk()
    async with serving([route(desk)]) as site:
        loop = asyncio.get_running_loop()
        began, client = loop.time(), site.connect()
        client.send(get("/it", "X-Deadline-Ms: 700"))

        assert (await client.answer()).json()["budget_ms"] == 700
        assert loop.time() - began == pytest.approx(0.7, abs=0.06)


# --- streams


async def hanging(first: bytes = b"first") -> AsyncIterator[bytes]:
    yield first
    await asyncio.sleep(3600)


@pytest.mark.parametrize(("chunk_s", "cut_after_s"), [(None, 5.0), (20.0, 20.0)])
async def test_a_stream_whose_next_piece_does_not_come_is_cut(chunk_s: float | None, cut_after_s: float) -> None:
    def handler(request: Request) -> StreamResponse:
        answer = StreamResponse(200, hanging())
        answer.chunk_s = chunk_s
        return answer

    async with serving([route(handler)]) as site:
        loop = asyncio.get_running_loop()
        began, client = loop.time(), site.connect()
        client.send(get("/it"))

        assert await client.gone() == []
        assert loop.time() - began == pytest.approx(cut_after_s, abs=0.1)
        assert b"first" in client.data
        assert not client.data.endswith(b"0\r\n\r\n")
        assert site.count("io_timeouts_total", op="stream") == 1
        assert site.listener.inflight == 0


async def test_a_stream_that_bounds_itself_may_be_silent_for_long() -> None:
    async def slow() -> AsyncIterator[bytes]:
        await asyncio.sleep(100)
        yield b"at last"

    def handler(request: Request) -> StreamResponse:
        answer = StreamResponse(200, slow())
        answer.chunk_s = NEVER
        return answer

    async with serving([route(handler)]) as site:
        client = site.connect()
        client.send(get("/it"))

        assert (await client.answer()).body == b"at last"


class Source(AsyncIterator[bytes]):
    """Pieces until it is told to stop."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = 0

    async def __anext__(self) -> bytes:
        await self.stopped
        raise Conflict

    def stop(self) -> None:
        self.stopped.set_result(None)

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_source_is_told_at_once_that_its_client_is_gone() -> None:
    sources: list[Source] = []

    def handler(request: Request) -> StreamResponse:
        sources.append(Source())
        return StreamResponse(200, sources[-1])

    async with serving([route(handler)]) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        client.transport.abort()
        await settle()

        assert (sources[0].stopped.done(), sources[0].closed) == (True, 1)
        assert site.listener.inflight == 0


async def test_a_condition_that_cuts_a_stream_is_no_bug() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"first"
        raise PenstockError("no more")

    async with serving([route(lambda _: StreamResponse(200, failing()))]) as site:
        client = site.connect()
        client.send(get("/it"))

        assert await client.gone() == []
        with pytest.raises(KeyError):
            site.count("job_failures_total", worker="listener", type="PenstockError")


@pytest.mark.parametrize("half_close", [True, False])
async def test_a_client_that_ends_its_side_waits_on_or_is_gone_as_the_listener_says(*, half_close: bool) -> None:
    desk = Desk()
    async with serving([route(desk)], {"half_close": half_close}) as site:
        client = site.connect()
        client.send(get("/it"))
        await settle()
        client.transport.write_eof()
        await settle()

        assert desk.promises[0].cancelled == (not half_close)
        desk.promises[0].resolve({"answer": 1})
        await settle()
        assert client.data.endswith(b'{"answer":1}') is half_close


@pytest.mark.parametrize(("given", "budget_ms"), [("700", 700), ("4000", 4000), ("9000", 5000), (None, 1000)])
async def test_a_client_extends_a_deadline_only_as_far_as_the_route_allows(given: str | None, budget_ms: int) -> None:
    desk = Desk()
    async with serving([route(desk, deadline_s=1.0, deadline_max_s=5.0)]) as site:
        client = site.connect()
        client.send(get("/it", *([f"X-Deadline-Ms: {given}"] if given else [])))

        assert (await client.answer()).json()["budget_ms"] == budget_ms
