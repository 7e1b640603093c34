"""What watches and broadcasts promise."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.errors import Closed, Lagging
from penstock.testing.session import run
from penstock.testing.sweep import Run, sweep


def check_a_write_before_subscribing_is_not_missed(make) -> None:
    async def scenario() -> str:
        watch = make("shutdown", "running")
        watch.set("draining")
        return await watch.subscribe().changed()

    assert run(scenario()) == "draining"


def check_a_write_between_two_looks_is_not_missed(make) -> None:
    async def scenario() -> list[int]:
        watch = make("config", 0)
        receiver, seen = watch.subscribe(), []
        for value in range(1, 4):
            watch.set(value)
            watch.set(value * 10)
            seen.append(await receiver.changed())
        return seen

    assert run(scenario()) == [10, 20, 30]


def check_every_waiter_sees_the_change(make) -> None:
    async def scenario() -> list[str]:
        watch = make("shutdown", "running")
        tasks = [asyncio.create_task(watch.subscribe().changed()) for _ in range(5)]
        await asyncio.sleep(1)
        watch.set("draining")
        return [await task for task in tasks]

    assert run(scenario()) == ["draining"] * 5


def check_a_cancelled_waiter_leaves_nothing_behind(make) -> None:
    async def scenario(run: Run[int]) -> int:
        watch = make("shutdown", "running")
        run.start(watch.subscribe().changed())
        await asyncio.sleep(1)
        if not run.fired:
            watch.set("draining")
        await run.ended()
        return len(watch._parked)

    sweep(scenario, check=lambda parked: parked == 0)


async def _read(receiver, count: int) -> tuple[list[int], list[int]]:
    """Receive until `count` messages came; also tell what each Lagging said."""
    got: list[int] = []
    lost: list[int] = []
    while len(got) < count:
        try:
            got.append(await receiver.recv())
        except Lagging as lagging:
            lost.append(lagging.skipped)
    return got, lost


def check_a_slow_receiver_learns_once_how_many_messages_it_lost(make) -> None:
    async def scenario() -> None:
        broadcast = make("events", capacity=4)
        receiver = broadcast.subscribe()
        for message in range(11):
            broadcast.publish(message)
        assert await _read(receiver, 4) == ([7, 8, 9, 10], [7])
        assert (broadcast.lagged, receiver.skipped) == (7, 7)

    run(scenario())


def check_a_receiver_exactly_at_capacity_has_lost_nothing(make) -> None:
    async def scenario() -> None:
        broadcast = make("events", capacity=4)
        receiver = broadcast.subscribe()
        for message in range(4):
            broadcast.publish(message)
        assert await _read(receiver, 4) == ([0, 1, 2, 3], [])
        assert broadcast.lagged == 0

    run(scenario())


def check_receivers_lag_independently(make) -> None:
    async def scenario() -> None:
        broadcast = make("events", capacity=2)
        slow, fast = broadcast.subscribe(), broadcast.subscribe()
        for message in range(5):
            broadcast.publish(message)
            assert await fast.recv() == message
        assert await _read(slow, 2) == ([3, 4], [3])
        assert broadcast.lagged == 3

    run(scenario())


def check_a_closed_broadcast_gives_what_is_unseen_then_ends(make) -> None:
    async def scenario() -> None:
        broadcast = make("events", capacity=4)
        seen, parked = broadcast.subscribe(), broadcast.subscribe()
        waiting = asyncio.create_task(parked.recv())
        await asyncio.sleep(0)
        broadcast.publish("last")
        broadcast.close()
        assert await waiting == "last"
        assert await seen.recv() == "last"
        for receiver in (seen, parked):
            with pytest.raises(Closed):
                await receiver.recv()

    run(scenario())


def check_a_cancelled_broadcast_receiver_loses_nothing(make) -> None:
    async def scenario(run: Run[list[int]]) -> list[int]:
        broadcast, got = make("events", capacity=8), []
        receiver = broadcast.subscribe()

        async def collect() -> None:
            for _ in range(3):
                message = await receiver.recv()
                got.append(message)

        run.start(collect())
        for message in range(3):
            await asyncio.sleep(1)
            broadcast.publish(message)
        await run.ended()
        while len(got) < 3:
            got.append(await receiver.recv())
        assert broadcast._parked == []
        return got

    sweep(scenario, check=lambda got: got == [0, 1, 2])
