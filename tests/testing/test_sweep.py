"""The sweep finds planted cancel-safety bugs, and leaves correct code alone."""

from __future__ import annotations

import asyncio
import sys
from collections import deque

import pytest

from penstock.kernel.channel import Channel, Full
from penstock.testing.sweep import Run, SweepFailure, sweep


class LossyChannel:
    """The planted bug: an item travels through the receiver's future, and dies with it."""

    def __init__(self) -> None:
        self.items: deque[str] = deque()
        self.waiters: deque[asyncio.Future[str]] = deque()

    def try_send(self, item: str) -> None:
        if self.waiters:
            self.waiters.popleft().set_result(item)
        else:
            self.items.append(item)

    async def recv(self) -> str:
        if self.items:
            return self.items.popleft()
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            return await waiter
        finally:
            if waiter in self.waiters:
                self.waiters.remove(waiter)

    def left(self) -> list[str]:
        return list(self.items)


class SoundChannel(Channel[str]):
    """The kernel's channel, with the one reader the scenario needs."""

    def __init__(self) -> None:
        super().__init__("work", capacity=8, full=Full.REFUSE)

    def left(self) -> list[str]:
        return list(self._items)


async def take_two(channel: LossyChannel | SoundChannel, taken: list[str]) -> None:
    for _ in range(2):
        item = await channel.recv()
        taken.append(item)


def nothing_is_lost(make: type[LossyChannel | SoundChannel]):
    async def scenario(run: Run[list[str]]) -> list[str]:
        channel, taken = make(), []
        run.start(take_two(channel, taken))
        for item in ("a", "b"):
            await asyncio.sleep(1)
            channel.try_send(item)
        await run.ended()
        return taken + channel.left()

    return scenario


def test_an_item_that_travels_through_a_future_is_lost_by_a_cancel() -> None:
    with pytest.raises(SweepFailure, match=r"the check refuses") as caught:
        sweep(nothing_is_lost(LossyChannel), check=lambda items: items == ["a", "b"])

    assert all("LossyChannel.recv" in failure.line for failure in caught.value.failures)


@pytest.mark.parametrize("fault", ["cancel", "crash"])
def test_the_kernel_channel_loses_nothing_at_any_step(fault) -> None:
    steps = sweep(nothing_is_lost(SoundChannel), fault=fault, check=lambda items: items == ["a", "b"])

    assert steps >= 3


async def swallowing_wait(future: asyncio.Future[None], seconds: float) -> None:
    """Wait for the future; the planted bug: a cancel that meets a finished future counts for nothing."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer = loop.call_later(seconds, waiter.cancel)
    future.add_done_callback(lambda _: waiter.done() or waiter.set_result(None))
    try:
        await waiter
    except asyncio.CancelledError:
        if not future.done():
            raise
    finally:
        timer.cancel()


async def sound_wait(future: asyncio.Future[None], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await future


def waits_by(wait):
    async def scenario(run: Run[None]) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        run.start(wait(future, 10))
        loop.call_later(1, lambda: future.done() or future.set_result(None))
        await run.ended()

    return scenario


def test_a_swallowed_cancel_is_found() -> None:
    with pytest.raises(SweepFailure, match="swallowed the cancel"):
        sweep(waits_by(swallowing_wait))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="wait_for keeps the cancel from 3.12 on")
def test_the_wait_for_of_python_3_11_swallows_a_cancel() -> None:
    with pytest.raises(SweepFailure, match="swallowed the cancel"):
        sweep(waits_by(asyncio.wait_for))


def test_asyncio_timeout_keeps_the_cancel() -> None:
    assert sweep(waits_by(sound_wait)) >= 3


class ForgetfulGate:
    """The planted bug: a wake given to a waiter that is then cancelled is not passed on."""

    def __init__(self) -> None:
        self.permits = 0
        self.waiters: deque[asyncio.Future[None]] = deque()

    def release(self) -> None:
        self.permits += 1
        self.wake_next()

    def wake_next(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def acquire(self) -> None:
        while not self.permits:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self.give_way(waiter)
                raise
        self.permits -= 1

    def give_way(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self.waiters:
            self.waiters.remove(waiter)


class MindfulGate(ForgetfulGate):
    """The same gate without the bug."""

    def give_way(self, waiter: asyncio.Future[None]) -> None:
        super().give_way(waiter)
        if waiter.done() and not waiter.cancelled():
            self.wake_next()


def one_permit_for_two(make: type[ForgetfulGate]):
    async def scenario(run: Run[None]) -> None:
        loop = asyncio.get_running_loop()
        gate = make()
        target = run.start(gate.acquire())
        await asyncio.sleep(0)
        peer = loop.create_task(gate.acquire(), name="peer")
        # The permit goes to the target; when that is cancelled it must reach the peer, else one more is given.
        loop.call_later(1, gate.release)
        target.add_done_callback(lambda task: task.cancelled() or gate.release())
        await peer
        await run.ended()

    return scenario


def test_a_lost_wake_up_is_found_as_a_deadlock() -> None:
    with pytest.raises(SweepFailure, match=r"Deadlock.*\n.*peer.*acquire"):
        sweep(one_permit_for_two(ForgetfulGate))


def test_a_wake_that_is_passed_on_survives_every_cancel() -> None:
    assert sweep(one_permit_for_two(MindfulGate)) >= 3


async def tidy_after_itself(log: list[str]) -> None:
    log.append("open")
    try:
        await asyncio.sleep(1)
        await asyncio.sleep(1)
    except ValueError:
        log.append("unreachable")
    log.append("close")  # The planted bug: not in a finally.


def test_a_crash_shows_the_clean_up_that_is_not_in_a_finally() -> None:
    async def scenario(run: Run[list[str]]) -> list[str]:
        log: list[str] = []
        run.start(tidy_after_itself(log))
        await run.ended()
        return log

    with pytest.raises(SweepFailure) as caught:
        sweep(scenario, fault="crash", check=lambda log: log.count("open") == log.count("close"))

    assert [failure.step for failure in caught.value.failures] == [1, 2]
    assert "tidy_after_itself" in caught.value.failures[0].line


def test_a_scenario_that_fails_untouched_is_reported_as_such() -> None:
    async def scenario(run: Run[int]) -> int:
        run.start(asyncio.sleep(1))
        await run.ended()
        return 1

    with pytest.raises(SweepFailure, match="no fault at all"):
        sweep(scenario, check=lambda value: value == 2)


def test_a_scenario_that_changes_from_run_to_run_is_refused() -> None:
    runs: list[int] = []

    async def scenario(run: Run[None]) -> None:
        runs.append(1)
        run.start(asyncio.sleep(0 if len(runs) > 1 else 1))
        await run.ended()

    with pytest.raises(SweepFailure, match="not deterministic"):
        sweep(scenario)


def test_a_task_that_ignores_its_fault_may_be_declared_fine() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return

    async def scenario(run: Run[None]) -> None:
        run.start(stubborn())
        await run.ended()

    assert sweep(scenario, ends="anyhow") >= 2
    with pytest.raises(SweepFailure, match="swallowed"):
        sweep(scenario)


def test_a_task_the_fault_leaves_behind_is_found() -> None:
    async def parent() -> None:
        child = asyncio.get_running_loop().create_task(asyncio.sleep(5), name="orphan")
        await asyncio.sleep(1)
        await child

    async def scenario(run: Run[None]) -> None:
        run.start(parent())
        await run.ended()

    with pytest.raises(SweepFailure, match="leaked task: orphan"):
        sweep(scenario)
