"""Timers that share one of the loop fire like the loop's own: at their instant, in order, and not once cancelled."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Timeout
from penstock.sdk.joining.timer_line import TimerLine


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_each_timer_fires_at_its_own_instant_and_one_that_left_does_not() -> None:
    line, fired = TimerLine(1.0), []
    began_at = now()
    timers = []
    for name in "abcd":
        timers.append(line.call_later(1.0, lambda name=name: fired.append((name, round(now() - began_at, 3)))))
        await asyncio.sleep(0.2)
    timers[0].cancel()
    timers[2].cancel()
    await asyncio.sleep(5)

    assert fired == [("b", 1.2), ("d", 1.6)]


async def test_a_timer_that_comes_when_the_line_is_empty_again_fires() -> None:
    line, fired = TimerLine(1.0), []
    line.call_later(1.0, lambda: fired.append("first")).cancel()
    await asyncio.sleep(5)
    line.call_later(1.0, lambda: fired.append("second"))
    await asyncio.sleep(1)

    assert fired == ["second"]


async def test_many_timers_are_one_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, made = asyncio.get_running_loop(), []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda at, *rest, **said: made.append(at) or call_at(at, *rest, **said))
    line = TimerLine(1.0)
    timers = [line.call_later(1.0, lambda: None) for _ in range(100)]
    for timer in timers:
        timer.cancel()

    assert len(made) == 1
    line.close()


async def test_a_shorter_timer_does_not_wait_behind_the_line() -> None:
    line = TimerLine(10.0)
    began_at = now()

    async def bounded(seconds: float) -> float:
        with pytest.raises(Timeout):
            async with timeout("test", seconds, line):
                await asyncio.sleep(60)
        return round(now() - began_at, 3)

    async def under_an_earlier_deadline() -> float:
        with pytest.raises(Timeout):
            async with timeout("outer", 0.5), timeout("test", 10.0, line):
                await asyncio.sleep(60)
        return round(now() - began_at, 3)

    async with asyncio.TaskGroup() as group:
        ended = [group.create_task(each) for each in (bounded(10.0), bounded(1.0), under_an_earlier_deadline())]
    assert [each.result() for each in ended] == [10.0, 1.0, 0.5]


async def test_a_closed_line_leaves_no_timer_on_the_loop() -> None:
    line, fired = TimerLine(1.0), []
    line.call_later(1.0, lambda: fired.append(1))
    line.close()
    await asyncio.sleep(5)

    assert fired == []
