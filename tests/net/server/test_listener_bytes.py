"""What requests hold: of the byte budget only what arrived, of memory nothing after they are answered."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter

import pytest
import zstandard

from penstock.kernel.errors import NotFound
from penstock.kernel.limiter import ByteBudget
from penstock.net.message import Request
from penstock.net.server.admission import Refusal
from penstock.net.server.exchange import Exchange
from tests.net.server.listener_kit import (
    ROUTES,
    get,
    post,
    route,
    serving,
    settle,
)

MIB = 1 << 20


def missing(_request: Request) -> None:
    """Have nothing."""
    raise NotFound


async def missing_late(request: Request) -> None:
    """Have nothing, and say so later."""
    await asyncio.sleep(0)
    missing(request)


def kept() -> Counter[str]:
    """Count what only a garbage collection would free, and what should not be there between requests."""
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, Request | Refusal | Exchange))


LATE = [route(missing_late, path="/late"), route(missing, path="/now")]


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("/nowhere"),
        get("/now"),
        get("/late"),
        post("/nowhere", b"x" * 1000),
        post("/echo", b"not json"),
        post("/echo", b"x" * 20, "Content-Encoding: gzip")[:-20] + b"x" * 20,
        post("/echo", b"x" * 20, "Content-Encoding: br"),
    ],
)
async def test_a_request_that_failed_is_gone_without_the_garbage_collector(request_bytes: bytes) -> None:
    async with serving([*ROUTES, *LATE]) as site:
        client = site.connect()
        client.send(request_bytes)
        await client.answers(1)
        again = client.ended
        await settle()
        gc.collect()
        gc.disable()
        try:
            before = kept()
            for _ in range(20):
                client = site.connect() if again else client
                client.send(request_bytes)
                await client.answers(1)
                await settle()
            after = kept()
        finally:
            gc.enable()

    # The last one of a connection may still be there, in a local of a turn that ended.
    assert sum((after - before).values()) <= 3


async def test_bodies_that_were_only_announced_keep_no_room_from_others() -> None:
    budget = ByteBudget(8 * MIB)
    async with serving(budget=budget) as site:
        for _ in range(64):
            site.connect().send(post("/echo", b"x" * MIB)[: -MIB + 1])
        await settle()
        held = budget.in_use
        client = site.connect()
        body = b'{"text":"' + b"a" * 100_000 + b'"}'
        client.send(post("/echo", body)[:-1])
        await settle()
        client.send(body[-1:])
        answer = await client.answer()

    assert held == 64
    assert answer.status == 200
    assert budget.in_use == 0


async def test_a_body_that_cannot_fit_is_refused_before_it_is_sent() -> None:
    async with serving(budget=ByteBudget(MIB)) as site:
        client = site.connect()
        client.send(post("/echo", b"x" * 600_000)[:-600_000])
        answers = await client.gone()

    assert [(answer.status, answer.json()["limit"]) for answer in answers] == [(429, "node_bytes")]


async def test_bytes_are_taken_as_they_arrive_and_the_one_too_many_is_busy() -> None:
    budget = ByteBudget(MIB)
    async with serving(budget=budget) as site:
        first, second = site.connect(), site.connect()
        for client in (first, second):
            client.send(post("/echo", b"x" * 400_000)[:-400_000])
        first.send(b"x" * 300_000)
        await settle()
        second.send(b"x" * 300_000)
        answers = await second.gone()
        held = budget.in_use
        first.transport.abort()
        await settle()

    assert [(answer.status, answer.json()["limit"]) for answer in answers] == [(429, "node_bytes")]
    assert held == 300_000
    assert budget.in_use == 0


async def test_many_small_flushed_blocks_are_charged_what_they_weigh() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    words = ['{"text":"', *[os.urandom(3).hex() for _ in range(1500)], '"}']
    packed = b"".join(
        compressor.compress(word.encode()) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for word in words
    )
    packed += compressor.flush()
    budget = ByteBudget(MIB)
    async with serving(budget=budget) as site:
        client = site.connect()
        client.send(post("/echo", packed, "Content-Encoding: zstd"))
        answer = await client.answer()

    assert answer.status == 200
    assert budget.in_use == 0
