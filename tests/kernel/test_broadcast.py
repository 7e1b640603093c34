"""The broadcast: nobody slows the publisher down, and who lost something learns exactly how much."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.broadcast import CAPACITY, Broadcast
from penstock.kernel.errors import Closed, Lagging
from tests.kernel.kit import turns


@settings(max_examples=80, deadline=None)
@given(
    capacity=st.integers(1, 5),
    steps=st.lists(st.one_of(st.just("publish"), st.integers(0, 2)), max_size=60),
)
async def test_what_a_receiver_got_and_lost_adds_up_to_what_was_published(capacity, steps) -> None:
    broadcast: Broadcast[int] = Broadcast("events", capacity=capacity)
    receivers = [broadcast.subscribe() for _ in range(3)]
    expected = [0, 0, 0]
    for step in steps:
        if step == "publish":
            assert broadcast.publish(broadcast.published) == 3
        elif receivers[step].cursor < broadcast.published:
            try:
                assert await receivers[step].recv() == expected[step]
                expected[step] += 1
            except Lagging as lagging:
                expected[step] += lagging.skipped
                assert await receivers[step].recv() == expected[step], "told twice about the same loss"
                expected[step] += 1
    for receiver, seen in zip(receivers, expected, strict=True):
        assert receiver.cursor == seen
    assert broadcast.lagged == sum(receiver.skipped for receiver in receivers)


def test_publishing_needs_no_loop_and_no_receiver() -> None:
    broadcast: Broadcast[int] = Broadcast("events")

    assert [broadcast.publish(n) for n in range(CAPACITY * 2)] == [0] * (CAPACITY * 2)
    assert (broadcast.depth, broadcast.lagged) == (0, 0)


async def test_depth_is_that_of_the_slowest_receiver_and_never_above_capacity() -> None:
    broadcast: Broadcast[int] = Broadcast("events", capacity=4)
    slow, fast = broadcast.subscribe(), broadcast.subscribe()
    for n in range(3):
        broadcast.publish(n)
        await fast.recv()

    assert broadcast.depth == 3
    for n in range(9):
        broadcast.publish(n)
    assert broadcast.depth == 4
    slow.close()
    fast.close()
    assert (broadcast.depth, broadcast.receivers) == (0, 0)


async def test_a_message_wakes_every_parked_receiver() -> None:
    broadcast: Broadcast[str] = Broadcast("events", capacity=4)
    tasks = [asyncio.create_task(broadcast.subscribe().recv()) for _ in range(5)]
    await turns()
    broadcast.publish("x")

    assert [await task for task in tasks] == ["x"] * 5


async def test_a_receiver_sees_only_what_came_after_it() -> None:
    broadcast: Broadcast[str] = Broadcast("events", capacity=4)
    broadcast.publish("before")
    receiver = broadcast.subscribe()
    broadcast.publish("after")

    assert await receiver.recv() == "after"


def test_a_closed_broadcast_takes_nothing_more() -> None:
    broadcast: Broadcast[str] = Broadcast("events", capacity=4)
    broadcast.close()
    broadcast.close()

    with pytest.raises(Closed):
        broadcast.publish("late")
    with pytest.raises(ValueError, match="capacity"):
        Broadcast("events", capacity=0)


async def test_receivers_that_are_cancelled_while_nothing_comes_leave_no_trace() -> None:
    broadcast: Broadcast[str] = Broadcast("events", capacity=4)
    tasks = [asyncio.create_task(broadcast.subscribe().recv()) for _ in range(5)]
    await turns()
    for task in tasks[:4]:
        task.cancel()
    await turns()

    assert len(broadcast._parked) == 1
    broadcast.publish("x")
    assert await tasks[4] == "x"
