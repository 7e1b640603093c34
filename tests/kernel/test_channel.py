"""The channel against a plain list, and under every cancel."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.kernel.channel import Channel, Full
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy, Closed, NotReady, Timeout
from penstock.testing.loop import VirtualLoop
from penstock.testing.sweep import Run, sweep
from tests.kernel.kit import now, turns


class ChannelMachine(RuleBasedStateMachine):
    """Any sequence of calls, receivers that come, are cancelled and go: the channel does what a list would do."""

    @initialize(capacity=st.integers(1, 4), full=st.sampled_from([Full.REFUSE, Full.DROP_OLDEST]))
    def open(self, capacity: int, full: Full) -> None:
        self.loop = VirtualLoop()
        self.channel: Channel[int] = Channel("work", capacity=capacity, full=full)
        self.model: deque[int] = deque()
        self.dropped = 0
        self.closed = self.suspended = False
        self.next = 0
        self.sent: list[int] = []
        self.received: list[int] = []
        self.waiting: list[asyncio.Task[None]] = []

    def _settle(self) -> None:
        self.loop.settle()
        self.waiting = [task for task in self.waiting if not task.done()]
        # What the parked receivers took in this step, the model gives in the same order.
        while len(self.received) > self._taken:
            assert self.received[self._taken] == self.model.popleft()
            self._taken += 1

    _taken = 0

    async def _receive(self, count: int) -> None:
        try:
            self.received += await self.channel.recv_many(count)
        except Closed:
            assert self.closed

    @rule()
    def send(self) -> None:
        item, self.next = self.next, self.next + 1
        try:
            self.channel.try_send(item)
        except Closed:
            assert self.closed
        except NotReady:
            assert self.suspended
            self.dropped += 1
        except Busy:
            assert len(self.model) == self.channel.capacity
            assert self.channel.full is Full.REFUSE
            self.dropped += 1
        else:
            assert not self.closed
            assert not self.suspended
            if len(self.model) == self.channel.capacity:
                self.model.popleft()
                self.dropped += 1
            self.model.append(item)

    @rule(count=st.integers(1, 3))
    def receive(self, count: int) -> None:
        self.waiting.append(self.loop.create_task(self._receive(count)))

    @rule()
    def step(self) -> None:
        self._settle()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 7))
    def cancel(self, which: int) -> None:
        self.waiting[which % len(self.waiting)].cancel()

    @rule()
    def suspend(self) -> None:
        self.channel.suspend()
        self.suspended = True

    @rule()
    def resume(self) -> None:
        self.channel.resume()
        self.suspended = False

    @rule()
    def close(self) -> None:
        self.channel.close()
        self.closed = True

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if hasattr(self, "channel"):
            assert list(self.channel._items) == list(self.model)
            assert self.channel.depth <= self.channel.capacity
            assert self.channel.dropped == self.dropped

    def teardown(self) -> None:
        if not hasattr(self, "channel"):
            return
        self._settle()
        assert not (self.model and self.waiting), "somebody sleeps beside an item"
        self.channel.close()
        self._settle()
        assert not self.waiting, "closing left a receiver asleep"
        self.loop.close()


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, database=None)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_channel_has_room_for_at_least_one(capacity) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Channel("work", capacity=capacity, full=Full.REFUSE)


@pytest.mark.parametrize(("full", "wait_s"), [(Full.WAIT, None), (Full.REFUSE, 0.1), (Full.DROP_OLDEST, 0.1)])
def test_only_a_waiting_channel_has_a_limit_and_it_must_have_one(full, wait_s) -> None:
    with pytest.raises(ValueError, match="wait limit"):
        Channel("work", capacity=1, full=full, wait_s=wait_s)


async def test_parked_receivers_are_served_in_the_order_they_came() -> None:
    channel, got = Channel("work", capacity=8, full=Full.REFUSE), []

    async def receive(name: str) -> None:
        got.append((name, await channel.recv()))

    tasks = [asyncio.create_task(receive(name)) for name in "abc"]
    await turns()
    for item in range(3):
        channel.try_send(item)
        await turns()
    await asyncio.wait(tasks)

    assert got == [("a", 0), ("b", 1), ("c", 2)]


async def test_parked_senders_are_served_in_the_order_they_came() -> None:
    channel = Channel("route", capacity=1, full=Full.WAIT, wait_s=60.0)
    channel.try_send("first")
    tasks = []
    for item in "abc":
        tasks.append(asyncio.create_task(channel.send(item)))
        await turns()

    got = []
    for _ in range(4):
        got.append(await channel.recv())
        await turns()

    assert got == ["first", "a", "b", "c"]
    assert all(task.done() for task in tasks)


async def test_a_receiver_overtaken_after_its_wake_keeps_its_place_in_line() -> None:
    channel, got = Channel("work", capacity=8, full=Full.REFUSE), []

    async def receive(name: str) -> None:
        got.append((name, await channel.recv()))

    tasks = [asyncio.create_task(receive("first"))]
    await turns()
    tasks.append(asyncio.create_task(receive("second")))
    await turns()
    channel.try_send(0)
    thief = channel._items.popleft()  # somebody who came in the same step
    await turns()
    channel.try_send(1)
    channel.try_send(2)
    await asyncio.wait(tasks)

    assert (thief, got) == (0, [("first", 1), ("second", 2)])


async def test_recv_many_takes_what_is_there_and_waits_only_for_the_first() -> None:
    channel = Channel("work", capacity=8, full=Full.REFUSE)
    for item in range(5):
        channel.try_send(item)

    assert await channel.recv_many(3) == [0, 1, 2]
    assert await channel.recv_many(64) == [3, 4]
    with pytest.raises(Timeout):
        async with timeout("recv", 1.0):
            await channel.recv_many(2)


async def test_recv_many_makes_room_for_as_many_senders() -> None:
    channel = Channel("route", capacity=3, full=Full.WAIT, wait_s=60.0)
    tasks = [asyncio.create_task(channel.send(item)) for item in range(6)]
    await turns()

    assert await channel.recv_many(3) == [0, 1, 2]
    await turns()
    assert channel.depth == 3
    assert all(task.done() for task in tasks)


async def test_closing_refuses_senders_that_wait_for_a_place() -> None:
    channel = Channel("route", capacity=1, full=Full.WAIT, wait_s=60.0)
    channel.try_send("a")
    tasks = [asyncio.create_task(channel.send(item)) for item in "bc"]
    await turns()
    channel.close()
    await asyncio.wait(tasks)

    assert [type(task.exception()) for task in tasks] == [Closed, Closed]
    assert await channel.recv() == "a"
    assert channel.dropped == 0


async def test_a_wait_is_clipped_by_the_callers_deadline() -> None:
    channel = Channel("route", capacity=1, full=Full.WAIT, wait_s=60.0)
    channel.try_send("a")
    with pytest.raises(Timeout):
        async with timeout("request", 0.5):
            await channel.send("b")

    assert now() == pytest.approx(1000.5)
    assert channel.depth == 1


async def test_resuming_does_not_reopen_a_closed_channel() -> None:
    channel = Channel("work", capacity=1, full=Full.REFUSE)
    channel.suspend()
    channel.close()
    channel.resume()

    with pytest.raises(Closed):
        channel.try_send("a")


async def test_a_receiver_goes_on_while_the_channel_is_suspended() -> None:
    channel = Channel("work", capacity=4, full=Full.REFUSE)
    receiving = asyncio.create_task(channel.recv())
    await turns()
    channel.suspend()
    await turns()
    channel.resume()
    channel.try_send("a")

    assert await receiving == "a"


async def test_a_timeout_that_meets_an_item_leaves_it_in_the_channel() -> None:
    """The timer and the item come in the same instant: the item is received or still there, never gone."""
    channel = Channel("work", capacity=4, full=Full.REFUSE)
    for delay_s in (0.999999, 1.0, 1.000001):
        asyncio.get_running_loop().call_later(delay_s, channel.try_send, "a")
        got = []
        try:
            async with timeout("recv", 1.0):
                got.append(await channel.recv())
        except Timeout:
            await asyncio.sleep(0.1)
        assert len(got) + channel.depth == 1
        channel._items.clear()


def test_senders_and_receivers_that_compete_lose_nothing_at_any_cancel() -> None:
    """Two senders and two receivers on two places; one of the receivers is cancelled before every step."""

    async def scenario(run: Run[list[int]]) -> list[int]:
        channel: Channel[int] = Channel("route", capacity=2, full=Full.WAIT, wait_s=1000.0)
        taken: list[int] = []

        async def produce(first: int) -> None:
            for item in range(first, first + 3):
                await channel.send(item)
                await asyncio.sleep(0)

        async def consume(limit: int) -> None:
            try:
                while True:
                    taken.extend(await channel.recv_many(limit))
                    await asyncio.sleep(0)
            except Closed:
                return

        run.start(consume(2))
        others = [asyncio.create_task(produce(first)) for first in (0, 10)]
        rival = asyncio.create_task(consume(1))
        await asyncio.wait(others)
        channel.close()
        await rival
        await run.ended()
        return sorted(taken + list(channel._items))

    steps = sweep(scenario, check=lambda items: items == [0, 1, 2, 10, 11, 12], ends="anyhow")

    assert steps > 10


def test_a_cancelled_sender_sends_its_item_wholly_or_not_at_all() -> None:
    async def scenario(run: Run[tuple[list[str], list[str]]]) -> tuple[list[str], list[str]]:
        channel: Channel[str] = Channel("route", capacity=1, full=Full.WAIT, wait_s=1000.0)
        told: list[str] = []

        async def produce() -> None:
            for item in "abc":
                await channel.send(item)
                told.append(item)

        run.start(produce())
        taken = []
        for _ in range(3):
            await asyncio.sleep(1)
            if channel.depth:
                taken.append(await channel.recv())
        await run.ended()
        return told, taken + list(channel._items)

    sweep(scenario, check=lambda result: result[0] == result[1])
