"""The driver of a call without a task: one timer, and nothing begins after the call is over."""

from __future__ import annotations

import asyncio
import random

from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import Canceled, DownstreamUnavailable, PenstockError
from penstock.net.calls.drive_callback import CallbackDriver
from penstock.net.calls.hedge import SAMPLES_MIN, HedgePolicy
from penstock.net.calls.plan import FINAL, PASSING, CallPlan, CallRules, TryOutcome

LATE_S = 0.01


class Try:
    """A try that ends when it is told to."""

    def __init__(self, *, hedge: bool) -> None:
        self.hedge = hedge
        self.dropped: PenstockError | None = None

    def drop(self, reason: PenstockError) -> None:
        self.dropped = reason


class Call:
    """A call whose tries are listed."""

    def __init__(self) -> None:
        self.driver: CallbackDriver[Try] = CallbackDriver()
        self.tries: list[Try] = []
        self.results: list[object] = []
        self.fails: PenstockError | None = None

    def begin_try(self, beside: Try | None, *, hedge: bool) -> None:
        if self.fails is not None:
            raise self.fails
        self.tries.append(Try(hedge=hedge))
        self.driver.alive.append(self.tries[-1])

    def make_plan(self) -> CallPlan:
        hedges = HedgePolicy(lambda: False)
        for _ in range(SAMPLES_MIN):
            hedges.begin()
        rules = CallRules(rng=random.Random(1), hedges=hedges)
        return CallPlan(rules, Deadline.after(60.0, now()), repeatable=True)

    def resolve(self, result: object) -> None:
        self.results.append(result)

    def fail(self, attempt: Try, outcome: TryOutcome = PASSING) -> bool:
        step = self.driver.plan_of(self).after(outcome, now(), others=len(self.driver.alive) - 1)
        return self.driver.repeats(self, attempt, step)


def now() -> float:
    return asyncio.get_running_loop().time()


def begun() -> Call:
    call = Call()
    call.begin_try(None, hedge=False)
    call.driver.hedge_after(LATE_S, call)
    return call


async def test_a_late_try_gets_a_hedge_and_the_other_is_dropped_when_one_wins() -> None:
    call = begun()
    await asyncio.sleep(2 * LATE_S)
    first, second = call.tries

    assert second.hedge
    assert call.driver.settle(second)
    assert isinstance(first.dropped, Canceled)
    assert second.dropped is None
    assert call.driver.alive == []


async def test_a_failure_beside_a_running_hedge_waits_for_the_hedge() -> None:
    call = begun()
    await asyncio.sleep(2 * LATE_S)

    assert call.fail(call.tries[0], FINAL)
    assert call.driver.alive == [call.tries[1]]


async def test_a_retry_takes_the_place_of_the_hedge_that_was_to_come() -> None:
    call = begun()
    call.fail(call.tries[0])
    await asyncio.sleep(2 * LATE_S)
    while_pausing = len(call.tries)
    await asyncio.sleep(1.0)

    assert while_pausing == 1
    assert [attempt.hedge for attempt in call.tries] == [False, False]


async def test_a_call_that_is_given_up_while_it_pauses_is_not_tried_again() -> None:
    call = begun()
    call.fail(call.tries[0])
    await asyncio.sleep(2 * LATE_S)
    call.driver.cancel(Canceled())
    await asyncio.sleep(1.0)

    assert len(call.tries) == 1


async def test_a_retry_that_cannot_begin_is_the_outcome() -> None:
    call = begun()
    call.fails = DownstreamUnavailable("nobody is there")
    call.fail(call.tries[0])
    await asyncio.sleep(1.0)

    assert call.results == [call.fails]
