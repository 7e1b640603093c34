"""Watch and snapshot: one value, the last write wins."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Timeout
from penstock.kernel.snapshot import Snapshot
from penstock.kernel.watch import Watch
from tests.kernel.kit import turns


async def test_a_receiver_waits_until_something_was_written() -> None:
    receiver = Watch("config", "v0").subscribe()

    assert receiver.value == "v0"
    with pytest.raises(Timeout):
        async with timeout("changed", 10.0):
            await receiver.changed()


async def test_writes_between_two_looks_are_seen_as_one() -> None:
    watch = Watch("config", 0)
    receiver = watch.subscribe()
    watch.set(1)
    watch.set(2)

    assert await receiver.changed() == 2
    with pytest.raises(Timeout):
        async with timeout("changed", 1.0):
            await receiver.changed()


async def test_writing_the_same_value_is_a_change() -> None:
    watch = Watch("config", 0)
    receiver = watch.subscribe()
    watch.set(0)

    assert await receiver.changed() == 0
    assert watch.version == 1


async def test_calls_run_inside_every_set_until_taken_off() -> None:
    watch, seen = Watch("config", 0), []
    off = watch.on_change(lambda: seen.append(watch.value))
    watch.set(1)
    watch.set(2)
    off()
    off()
    watch.set(3)

    assert seen == [1, 2]


async def test_waiters_are_woken_in_the_order_they_came() -> None:
    watch, order = Watch("config", 0), []

    async def wait(name: str) -> None:
        await watch.wait()
        order.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in "abcdef"]
    await turns()
    watch.set(1)
    await asyncio.wait(tasks)

    assert order == list("abcdef")


def test_a_snapshot_is_swapped_whole() -> None:
    first, second = {"v": 1}, {"v": 2}
    snapshot = Snapshot(first)
    held = snapshot.value

    assert snapshot.swap(second) is first
    assert (held, snapshot.value, snapshot.version) == ({"v": 1}, second, 2)
