"""Deadlines: an instant, carried along; every nested timeout is min(own, remaining)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.deadline import Deadline, current_deadline, no_deadline, timeout, use_deadline
from penstock.kernel.errors import Timeout
from penstock.testing.sweep import Run, sweep
from tests.kernel.kit import now


@settings(deadline=None)
@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(-10, 2e4))
def test_what_remains_is_never_negative_and_clips_everything(start, seconds, later) -> None:
    deadline = Deadline.after(seconds, start)
    at = start + later

    assert deadline.remaining(at) >= 0
    assert deadline.clip(5.0, at) == min(5.0, deadline.remaining(at))
    assert deadline.expired(at) == (deadline.remaining(at) == 0)


async def test_an_outer_deadline_that_ends_earlier_stays_in_force() -> None:
    early, late = Deadline.after(1.0, now()), Deadline.after(9.0, now())
    with use_deadline(early):
        with use_deadline(late) as inner:
            assert inner is early
        with use_deadline(None) as inner:
            assert inner is early
    with use_deadline(late), use_deadline(early) as inner:
        assert inner is early

    assert current_deadline() is None


async def test_a_passed_deadline_cuts_at_the_first_suspension() -> None:
    reached = []

    async def call() -> None:
        async with timeout("rpc", 5.0):
            reached.append("ran up to the wait")
            await asyncio.sleep(1)

    with use_deadline(Deadline.after(0.0, now())), pytest.raises(Timeout) as caught:
        await call()

    assert (reached, caught.value.budget_s, now()) == (["ran up to the wait"], 0.0, 1000.0)


async def test_of_two_nested_timeouts_the_shorter_one_speaks() -> None:
    with pytest.raises(Timeout) as caught:
        async with timeout("outer", 1.0), timeout("inner", 5.0):
            await asyncio.sleep(60)
    assert now() == pytest.approx(1001.0)

    with pytest.raises(Timeout) as caught:
        async with timeout("outer", 5.0), timeout("inner", 1.0):
            await asyncio.sleep(60)
    assert caught.value.op == "inner"


async def test_a_deadline_says_since_when_the_caller_waits_through_every_timeout_in_it() -> None:
    whole = Deadline.after(9.0, now())
    with use_deadline(whole):
        await asyncio.sleep(2.0)
        async with timeout("outer", 5.0), timeout("inner", 1.0):
            inner = current_deadline()

    assert inner is not None
    assert (inner.at - whole.since, inner.since) == (3.0, whole.since)


async def test_an_error_of_the_block_is_not_hidden_by_a_late_timer() -> None:
    async def fail_to_clean_up() -> None:
        async with timeout("rpc", 1.0):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise KeyError("cleanup failed") from None

    with pytest.raises(KeyError):
        await fail_to_clean_up()

    assert asyncio.current_task().cancelling() == 0


async def test_a_task_started_inside_a_block_is_under_its_deadline() -> None:
    async def inner() -> float:
        return current_deadline().remaining(now())

    async with timeout("request", 2.0):
        await asyncio.sleep(0.5)
        left_s = await asyncio.create_task(inner())

    assert left_s == pytest.approx(1.5)


def test_a_timeout_outside_a_task_is_a_bug() -> None:
    coro = timeout("rpc", 1.0).__aenter__()

    with pytest.raises(RuntimeError):
        coro.send(None)


def test_a_cancel_at_any_step_is_never_swallowed_by_nested_timeouts() -> None:
    async def scenario(run: Run[None]) -> None:
        async def work() -> None:
            for seconds in (1.0, 2.0, 3.0):
                try:
                    async with timeout("outer", seconds), timeout("inner", 2.0):
                        await asyncio.sleep(2.0)
                except Timeout:
                    await asyncio.sleep(0)

        run.start(work())
        await run.ended()

    assert sweep(scenario) > 5


def test_what_outlives_its_maker_is_made_without_the_makers_deadline() -> None:
    with use_deadline(Deadline.after(1.0, 0.0)) as outer:
        with no_deadline():
            assert current_deadline() is None
        assert current_deadline() is outer
