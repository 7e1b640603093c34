"""The wheel: nothing early, nothing forgotten, moving later is free."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.net.server.wheel import NEVER, TICK_S, TimerWheel


class Thing:
    """Something with a deadline."""

    def __init__(self, due: float) -> None:
        self.due = due
        self.slot = 0
        self.fired: list[float] = []

    def expire(self, now: float) -> None:
        """Note when."""
        self.fired.append(now)
        self.due = NEVER


async def test_a_deadline_fires_once_never_early_and_at_most_two_ticks_late() -> None:
    loop = asyncio.get_running_loop()
    wheel, start = TimerWheel(loop), loop.time()
    things = [Thing(start + delay / 7) for delay in range(1, 50)]
    dues = [thing.due for thing in things]
    for thing in things:
        wheel.watch(thing)
    await asyncio.sleep(10)

    for thing, due in zip(things, dues, strict=True):
        assert len(thing.fired) == 1
        assert due <= thing.fired[0] <= due + 2 * TICK_S


async def test_a_deadline_that_moved_later_is_honoured_without_being_told() -> None:
    loop = asyncio.get_running_loop()
    wheel = TimerWheel(loop)
    thing = Thing(loop.time() + 1)
    wheel.watch(thing)
    thing.due = moved = loop.time() + 3
    await asyncio.sleep(5)

    assert len(thing.fired) == 1
    assert thing.fired[0] >= moved


async def test_a_thing_that_is_watched_again_does_not_make_others_late() -> None:
    """Its new deadline is armed while the wheel turns, and must not stand before an earlier one of another."""

    class Again(Thing):
        def expire(self, now: float) -> None:
            super().expire(now)
            self.due = now + 60

    loop = asyncio.get_running_loop()
    wheel, start = TimerWheel(loop), loop.time()
    again, moved, other = Again(start + 1), Thing(start + 1), Thing(start + 2)
    for thing in (again, moved, other):
        wheel.watch(thing)
    moved.due = start + 30
    await asyncio.sleep(40)
    wheel.close()

    assert other.fired == [pytest.approx(start + 2, abs=2 * TICK_S)]
    assert moved.fired == [pytest.approx(start + 30, abs=2 * TICK_S)]


async def test_a_deadline_that_moved_earlier_fires_then_once_it_is_told() -> None:
    loop = asyncio.get_running_loop()
    wheel = TimerWheel(loop)
    thing = Thing(loop.time() + 60)
    wheel.watch(thing)
    thing.due = moved = loop.time() + 1
    wheel.watch(thing)
    await asyncio.sleep(70)

    assert len(thing.fired) == 1
    assert thing.fired[0] <= moved + 2 * TICK_S


async def test_a_thing_that_stays_due_is_looked_at_once_a_tick_and_not_forever() -> None:
    class Stubborn(Thing):
        def expire(self, now: float) -> None:
            self.fired.append(now)

    loop = asyncio.get_running_loop()
    wheel = TimerWheel(loop)
    thing = Stubborn(loop.time())
    wheel.watch(thing)
    await asyncio.sleep(1)
    wheel.close()

    assert 10 <= len(thing.fired) <= 21


async def test_forgotten_things_never_fire_and_an_empty_wheel_has_no_timer() -> None:
    loop = asyncio.get_running_loop()
    wheel = TimerWheel(loop)
    thing = Thing(loop.time() + 1)
    wheel.watch(thing)
    wheel.forget(thing)
    thing.due = NEVER
    await asyncio.sleep(2)

    assert thing.fired == []
    assert wheel._timer is None


async def test_a_closed_wheel_takes_nobody_in() -> None:
    loop = asyncio.get_running_loop()
    wheel = TimerWheel(loop)
    wheel.close()
    thing = Thing(loop.time() + 1)
    wheel.watch(thing)
    await asyncio.sleep(2)

    assert thing.fired == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=20))
async def test_whatever_the_delays_everything_fires_in_its_time(delays: list[float]) -> None:
    loop = asyncio.get_running_loop()
    wheel, start = TimerWheel(loop), loop.time()
    things = [Thing(start + delay) for delay in delays]
    for thing in things:
        wheel.watch(thing)
    await asyncio.sleep(6)

    for thing, delay in zip(things, delays, strict=True):
        assert start + delay <= thing.fired[0] <= start + delay + 2 * TICK_S
