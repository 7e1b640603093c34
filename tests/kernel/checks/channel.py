"""What a channel promises, as checks that any channel class can be held to."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.channel import Full
from penstock.kernel.errors import Busy, Closed, NotReady, Timeout
from penstock.testing.session import run
from penstock.testing.sweep import Run, sweep


def check_capacity_is_never_exceeded(make) -> None:
    for full in (Full.REFUSE, Full.DROP_OLDEST):
        channel = make("work", capacity=3, full=full)
        for item in range(10):
            try:
                channel.try_send(item)
            except Busy:
                assert full is Full.REFUSE
            assert channel.depth <= 3


def check_a_full_channel_refuses_and_keeps_its_items(make) -> None:
    channel = make("work", capacity=2, full=Full.REFUSE)
    channel.try_send("a")
    channel.try_send("b")

    for _ in range(3):
        with pytest.raises(Busy):
            channel.try_send("c")

    assert channel.dropped == 3
    assert run(channel.recv_many(9)) == ["a", "b"]


def check_drop_oldest_keeps_the_newest_and_counts_each_loss(make) -> None:
    channel = make("audit", capacity=3, full=Full.DROP_OLDEST)
    for item in range(8):
        channel.try_send(item)

    assert channel.dropped == 5
    assert run(channel.recv_many(9)) == [5, 6, 7]


def check_items_come_out_in_the_order_they_went_in(make) -> None:
    channel = make("work", capacity=8, full=Full.REFUSE)
    for item in range(8):
        channel.try_send(item)

    async def scenario() -> list[int]:
        return [await channel.recv(), *await channel.recv_many(3), await channel.recv()]

    assert run(scenario()) == [0, 1, 2, 3, 4]


def check_closing_refuses_senders_and_keeps_what_is_there(make) -> None:
    async def scenario() -> None:
        channel = make("work", capacity=4, full=Full.REFUSE)
        channel.try_send("a")
        channel.try_send("b")
        channel.close()
        channel.close()
        with pytest.raises(Closed):
            channel.try_send("c")
        assert await channel.recv() == "a"
        assert await channel.recv() == "b"
        with pytest.raises(Closed):
            await channel.recv()

    run(scenario())


def check_closing_wakes_every_receiver(make) -> None:
    async def receive(channel) -> str:
        try:
            return await channel.recv()
        except Closed:
            return "closed"

    async def scenario() -> list[str]:
        channel = make("work", capacity=4, full=Full.REFUSE)
        tasks = [asyncio.create_task(receive(channel)) for _ in range(3)]
        await asyncio.sleep(1)
        channel.close()
        return [await task for task in tasks]

    assert run(scenario()) == ["closed"] * 3


async def _collect(channel, taken: list[str], count: int) -> None:
    while count:
        items = await channel.recv_many(count)
        taken.extend(items)
        count -= len(items)


def check_a_cancelled_receiver_loses_nothing(make) -> None:
    async def scenario(run: Run[list[str]]) -> list[str]:
        channel, taken = make("work", capacity=8, full=Full.REFUSE), []
        run.start(_collect(channel, taken, 3))
        for item in ("a", "b", "c"):
            await asyncio.sleep(0 if item == "b" else 1)
            channel.try_send(item)
        await run.ended()
        channel.close()
        while channel.depth:
            taken.append(await channel.recv())
        return taken

    sweep(scenario, check=lambda items: items == ["a", "b", "c"])
    sweep(scenario, fault="crash", check=lambda items: items == ["a", "b", "c"])


def check_a_woken_receiver_that_is_cancelled_passes_its_wake_on(make) -> None:
    """The target waits first in line; its rival must get the item if the target dies with the wake in hand."""

    async def scenario(run: Run[list[str]]) -> list[str]:
        channel, taken, rivals = make("work", capacity=8, full=Full.REFUSE), [], []
        run.start(_collect(channel, taken, 1))
        await asyncio.sleep(1)
        rival = asyncio.create_task(_collect(channel, rivals, 1))
        await asyncio.sleep(1)
        channel.try_send("a")
        await run.ended()
        if taken:
            channel.try_send("b")
        await rival
        return taken + rivals

    sweep(scenario, check=lambda items: items in (["a"], ["a", "b"]))


async def _send_all(channel, items: list[str]) -> None:
    for item in items:
        await channel.send(item)


def check_a_woken_sender_that_is_cancelled_passes_its_wake_on(make) -> None:
    async def scenario(run: Run[list[str]]) -> list[str]:
        channel, taken = make("route", capacity=1, full=Full.WAIT, wait_s=100.0), []
        channel.try_send("first")
        run.start(_send_all(channel, ["target"]))
        await asyncio.sleep(1)
        rival = asyncio.create_task(_send_all(channel, ["rival"]))
        await asyncio.sleep(1)
        taken.append(await channel.recv())
        await run.ended()
        # If the target got its place, one more receive makes the rival's; if not, the place was passed on.
        while "rival" not in taken:
            taken.append(await channel.recv())
        await rival
        assert asyncio.get_running_loop().time() < 1010, "somebody waited beside a free place"
        return taken

    sweep(scenario, check=lambda items: items in (["first", "target", "rival"], ["first", "rival"]))


def check_a_waiting_sender_gives_up_after_its_limit_and_is_counted_once(make) -> None:
    async def scenario() -> None:
        channel = make("route", capacity=1, full=Full.WAIT, wait_s=0.1)
        await channel.send("a")
        began = asyncio.get_running_loop().time()
        with pytest.raises(Timeout) as caught:
            await channel.send("b")
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.1)
        assert caught.value.budget_s == pytest.approx(0.1)
        assert (channel.dropped, channel.depth) == (1, 1)

    run(scenario())


def check_a_suspended_channel_refuses_and_keeps_what_is_queued(make) -> None:
    async def scenario() -> None:
        channel = make("work", capacity=4, full=Full.REFUSE)
        channel.try_send("a")
        channel.suspend()
        with pytest.raises(NotReady):
            channel.try_send("b")
        assert (channel.depth, channel.dropped) == (1, 1)
        assert await channel.recv() == "a"
        channel.resume()
        channel.try_send("c")
        assert await channel.recv() == "c"

    run(scenario())


def check_suspending_refuses_those_who_wait_for_a_place(make) -> None:
    async def scenario() -> None:
        channel = make("route", capacity=1, full=Full.WAIT, wait_s=5.0)
        channel.try_send("a")
        waiting = [asyncio.create_task(channel.send(item)) for item in ("b", "c")]
        await asyncio.sleep(1)
        channel.suspend()
        await asyncio.wait(waiting)
        assert [type(task.exception()) for task in waiting] == [NotReady, NotReady]
        assert asyncio.get_running_loop().time() == pytest.approx(1001.0)

    run(scenario())
