"""One snapshot for everybody, none for nobody; a bounded number of viewers, and each of them goes in good order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.admin.publisher import STREAM_S, VIEWERS_MAX, Publisher, Viewer
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor


class Made:
    """Counts the snapshots that were made."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int) -> dict[str, object]:
        self.numbers.append(number)
        return {"number": number}


@asynccontextmanager
async def publishing() -> AsyncIterator[tuple[Publisher, Made, Supervisor]]:
    made = Made()
    inventory = Inventory("node", LoopClock())
    publisher = Publisher(inventory, made)
    boss = Supervisor(inventory, [ChildSpec("page_publisher", publisher.run)])
    await boss.start()
    await asyncio.sleep(0)
    try:
        yield publisher, made, boss
    finally:
        await boss.drain()


def always() -> bool:
    return True


async def read(viewer: Viewer) -> list[tuple[str, Any]]:
    """Take one piece off a stream; it may hold several events."""
    events = (await anext(viewer)).decode().strip().split("\n\n")
    pairs = [event.split("\n") for event in events]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


async def test_nobody_looks_and_nothing_is_made() -> None:
    async with publishing() as (publisher, made, _):
        await asyncio.sleep(3600)
        assert made.numbers == []
        viewer = publisher.open(always)
        await read(viewer)
        await viewer.aclose()
        await asyncio.sleep(2)
        before = len(made.numbers)
        await asyncio.sleep(3600)

        assert len(made.numbers) == before


async def test_a_viewer_gets_its_first_frame_at_once_and_one_a_second_after() -> None:
    async with publishing() as (publisher, _, _):
        loop = asyncio.get_running_loop()
        began = loop.time()
        viewer = publisher.open(always)
        arrivals = []
        for _ in range(4):
            await read(viewer)
            arrivals.append(loop.time() - began)
        await viewer.aclose()

    assert arrivals == [0, 1, 2, 3]


async def test_a_frame_is_made_once_however_many_look() -> None:
    async with publishing() as (publisher, made, _):
        viewers = [publisher.open(always) for _ in range(VIEWERS_MAX)]
        for _ in range(3):
            frames = [await read(viewer) for viewer in viewers]
            assert all(frame == frames[0] for frame in frames)
        for viewer in viewers:
            await viewer.aclose()

    assert made.numbers == [1, 2, 3]


async def test_a_late_viewer_is_shown_the_fresh_frame_and_never_an_old_one() -> None:
    async with publishing() as (publisher, made, _):
        first = publisher.open(always)
        await read(first)
        await asyncio.sleep(0.5)
        late = publisher.open(always)
        assert await read(late) == [("state", {"number": 1})]
        await first.aclose()
        await late.aclose()
        await asyncio.sleep(60)
        seen = len(made.numbers)
        back = publisher.open(always)
        assert await read(back) == [("state", {"number": seen + 1})]
        await back.aclose()


async def test_a_slow_viewer_skips_to_the_newest_frame() -> None:
    async with publishing() as (publisher, _, _):
        viewer = publisher.open(always)
        await read(viewer)
        await asyncio.sleep(10.5)

        assert await read(viewer) == [("state", {"number": 11})]
        await viewer.aclose()


async def test_one_viewer_too_many_is_refused_and_a_place_comes_back_once() -> None:
    async with publishing() as (publisher, _, _):
        viewers = [publisher.open(always) for _ in range(VIEWERS_MAX)]
        with pytest.raises(Busy):
            publisher.open(always)
        # Never begun, and closed twice: the place is given back, and once.
        await viewers[0].aclose()
        await viewers[0].aclose()
        viewers[0] = publisher.open(always)
        with pytest.raises(Busy):
            publisher.open(always)
        for viewer in viewers:
            await viewer.aclose()

        assert publisher.places.in_use == 0


async def test_a_viewer_whose_session_ended_is_told_and_gets_no_further_figure() -> None:
    allowed = True
    async with publishing() as (publisher, _, _):
        viewer = publisher.open(lambda: allowed)
        await read(viewer)
        allowed = False
        last = await read(viewer)
        rest = [piece async for piece in viewer]
        await viewer.aclose()

    assert last == [("bye", {"why": "signed_out"})]
    assert rest == []


async def test_a_stream_ends_before_its_request_would_and_asks_to_come_back() -> None:
    async with publishing() as (publisher, _, _):
        viewer = publisher.open(always)
        await read(viewer)
        await asyncio.sleep(STREAM_S)

        assert await read(viewer) == [("bye", {"why": "renew"})]
        await viewer.aclose()


async def test_at_the_end_every_viewer_gets_the_last_frame_and_a_farewell_at_once() -> None:
    async with publishing() as (publisher, _, boss):
        viewers = [publisher.open(always) for _ in range(3)]
        for viewer in viewers:
            await read(viewer)
        publisher.end()
        last = [await read(viewer) for viewer in viewers]
        rest = [piece for viewer in viewers async for piece in viewer]
        for viewer in viewers:
            await viewer.aclose()
        report = await boss.drain()

    assert last == [[("state", {"number": 2}), ("bye", {"why": "stopped"})]] * 3
    assert rest == []
    assert report.clean


async def test_the_drain_wakes_a_publisher_that_sleeps() -> None:
    async with publishing() as (_, made, boss):
        began = asyncio.get_running_loop().time()
        report = await boss.drain()

        assert report.clean
        assert asyncio.get_running_loop().time() == began
        assert made.numbers == []


async def test_text_with_line_ends_cannot_forge_an_event() -> None:
    inventory = Inventory("node", LoopClock())
    publisher = Publisher(inventory, lambda _number: {"text": "a\n\nevent: bye\ndata: {}\r\n"})
    viewer = publisher.open(always)
    publisher.publish()

    assert await read(viewer) == [("state", {"text": "a\n\nevent: bye\ndata: {}\r\n"})]
    await viewer.aclose()
