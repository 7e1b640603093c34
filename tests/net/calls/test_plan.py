"""The plan of a call: what is tried again, when, and what is not; nothing here waits or reads a clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.backoff import Doubling, RetryBudget
from penstock.kernel.deadline import Deadline
from penstock.net.calls.hedge import SAMPLES_MIN, HedgePolicy
from penstock.net.calls.plan import AT_ONCE, FINAL, PASSING, Act, CallPlan, CallRules, NextStep, TryOutcome

NOW = 100.0
BACKOFF = Doubling(0.1, 0.2, cap_s=2.0)


def plan_of(tries: int = 1, *, repeatable: bool = True, left_s: float = 10.0, **rules: object) -> CallPlan:
    """Return the plan of a call that was tried so often."""
    made = CallRules(**{"rng": random.Random(1), "tries_max": 3, "backoff": BACKOFF, **rules})  # type: ignore[arg-type]
    plan = CallPlan(made, Deadline.after(left_s, NOW), repeatable=repeatable)
    for _ in range(tries):
        plan.begin()
    return plan


@pytest.mark.parametrize(
    ("plan", "outcome"),
    [
        (plan_of(repeatable=False), PASSING),
        (plan_of(), FINAL),
        (plan_of(3), PASSING),
        (plan_of(left_s=0.05), PASSING),
        (plan_of(left_s=5.0), TryOutcome(mendable=True, least_s=5.0)),
        (plan_of(left_s=0.0), AT_ONCE),
    ],
    ids=["not repeatable", "not mendable", "no tries left", "no time left", "the peer asks for too long", "too late"],
)
def test_the_outcome_stands_when_another_try_is_not_allowed(plan: CallPlan, outcome: TryOutcome) -> None:
    assert plan.after(outcome, NOW) == NextStep(Act.STOP)


@given(tries=st.integers(1, 2), least_s=st.floats(0, 3))
def test_the_pause_is_drawn_from_the_backoff_and_at_least_what_the_peer_asked_for(tries: int, least_s: float) -> None:
    step = plan_of(tries).after(TryOutcome(mendable=True, least_s=least_s), NOW)

    low_s, high_s = 0.1 * 2 ** (tries - 1), 0.2 * 2 ** (tries - 1)
    assert step.act is Act.TRY
    assert max(least_s, low_s) <= step.delay_s <= max(least_s, high_s)


def test_nothing_is_paused_for_when_something_has_changed() -> None:
    assert plan_of().after(AT_ONCE, NOW) == NextStep(Act.TRY, 0.0)


def test_another_try_under_way_decides() -> None:
    assert plan_of().after(FINAL, NOW, others=1) == NextStep(Act.WAIT)


def test_an_empty_budget_denies_and_is_told_apart() -> None:
    budget = RetryBudget(floor_per_s=0.1)
    budget.record_call(NOW)

    steps = [plan_of(budget=budget).after(PASSING, NOW) for _ in range(2)]

    assert [step.act for step in steps] == [Act.TRY, Act.STOP]
    assert [step.denied for step in steps] == [False, True]


def test_a_call_that_is_not_repeated_takes_nothing_from_the_budget() -> None:
    budget = RetryBudget(floor_per_s=0.1)
    for plan in (plan_of(3, budget=budget), plan_of(repeatable=False, budget=budget), plan_of(left_s=0, budget=budget)):
        plan.after(PASSING, NOW)

    assert plan_of(budget=budget).after(PASSING, NOW).act is Act.TRY


def earned(*, shedding: bool = False) -> HedgePolicy:
    """Return a policy with a percentile and one hedge to spend."""
    hedges = HedgePolicy(lambda: shedding)
    for _ in range(SAMPLES_MIN):
        hedges.begin()
        hedges.observe(0.1)
    return hedges


def test_a_late_try_is_hedged_once_and_only_beside_the_first() -> None:
    plan = plan_of(hedges=earned())

    assert plan.late(running=2).act is Act.WAIT
    assert plan.late(running=0).act is Act.WAIT
    assert [plan.late(running=1).act for _ in range(2)] == [Act.HEDGE, Act.WAIT]


@pytest.mark.parametrize("hedges", [None, earned(shedding=True), HedgePolicy(lambda: False)])
def test_nothing_is_hedged_without_a_policy_under_load_or_without_credit(hedges: HedgePolicy | None) -> None:
    assert plan_of(hedges=hedges).late(running=1).act is Act.WAIT
