"""Limiters, buckets, backoff and breaker: the edges their laws do not reach."""

from __future__ import annotations

import pytest

from penstock.kernel.backoff import MAX_TRIES, RetryBudget, Stepped
from penstock.kernel.breaker import Breaker, BreakerPolicy, BreakerState
from penstock.kernel.errors import Busy
from penstock.kernel.limiter import ByteBudget, Limiter, TokenBucket
from tests.kernel.kit import Loaded


def test_a_limiter_names_itself_when_it_refuses() -> None:
    limiter = Limiter("inflight", 2)
    limiter.acquire_or_busy(2)

    with pytest.raises(Busy) as caught:
        limiter.acquire_or_busy()
    assert caught.value.facts == {"limit": "inflight"}
    assert (limiter.free, limiter.refused) == (0, 1)
    with pytest.raises(ValueError, match="capacity"):
        Limiter("inflight", 0)


def test_bytes_for_no_holder_count_against_the_process_only() -> None:
    budget = ByteBudget(100)
    share = budget.share()
    assert budget.try_take(80)
    assert not share.try_take(30)
    assert share.try_take(20)
    assert not budget.try_take(1)
    budget.give(80)
    share.give(20)

    assert (budget.in_use, budget.refused, share.in_use) == (0, 2, 0)


def test_one_holder_cannot_starve_another() -> None:
    budget = ByteBudget(100)
    greedy, modest = budget.share(), budget.share()
    while greedy.try_take(1):
        continue

    assert greedy.in_use == 50
    assert modest.try_take(50)


def test_a_bucket_of_rate_zero_is_off() -> None:
    bucket = TokenBucket("rps", rate=0.0, depth=1.0, now=0.0)

    assert all(bucket.try_take(0.0) for _ in range(100))
    assert bucket.wait_s(0.0) == 0.0


def test_the_last_window_of_a_stepped_schedule_repeats_under_its_cap() -> None:
    schedule = Stepped(((0.1, 0.2), (1.0, 9.0)), cap_s=2.0)

    assert schedule.delay(0, Loaded(0.5)) == pytest.approx(0.15)
    assert schedule.delay(1, Loaded(0.999)) == 2.0
    assert schedule.delay(50, Loaded(0.0)) == 1.0
    assert MAX_TRIES == 3


def test_a_refused_retry_costs_nothing() -> None:
    budget = RetryBudget()
    granted = sum(budget.allow(5.0) for _ in range(100))
    assert granted == 30
    assert not budget.allow(14.9)

    assert sum(budget.allow(15.0) for _ in range(100)) == 30


@pytest.mark.parametrize("probes", [0, 4])
def test_a_breaker_has_one_to_three_probes(probes) -> None:
    with pytest.raises(ValueError, match="1-3"):
        BreakerPolicy(probes=probes)


def test_breaker_tells_since_when_calls_have_failed_until_one_comes_back_well() -> None:
    breaker = Breaker("kms", BreakerPolicy(samples_min=2, open_s=5.0))
    assert (breaker.failing_since, breaker.failures_in_a_row) == (None, 0)
    for now in (10.0, 11.0):
        breaker.failure(now)
    assert breaker.state is BreakerState.OPEN
    assert breaker.allow(16.0)
    breaker.failure(16.0)
    assert (breaker.failing_since, breaker.failures_in_a_row) == (10.0, 3), "a failed probe begins nothing anew"

    assert breaker.allow(21.0)
    breaker.success(21.0, 0.1)

    assert (breaker.failing_since, breaker.failures_in_a_row) == (None, 0)


def test_a_success_ends_a_row_of_timeouts() -> None:
    breaker = Breaker("kms", BreakerPolicy(timeouts_in_a_row=3, error_rate=0.0))
    for _ in range(10):
        breaker.failure(1.0, timed_out=True)
        breaker.failure(1.0, timed_out=True)
        breaker.success(1.0, 0.1)
        breaker.failure(1.0, timed_out=True)
        breaker.failure(1.0)
        breaker.success(1.0, 0.1)
        breaker.success(1.0, 0.1)
        breaker.success(1.0, 0.1)

    assert breaker.state is BreakerState.CLOSED


def test_outcomes_while_open_change_nothing() -> None:
    breaker = Breaker("kms", BreakerPolicy(timeouts_in_a_row=1, open_s=5.0))
    breaker.failure(0.0, timed_out=True)
    breaker.success(1.0, 1.0)
    breaker.failure(2.0)
    breaker.abandon()

    assert (breaker.state, breaker.opened) == (BreakerState.OPEN, 1)
    assert breaker.retry_after_s(2.0) == 3.0
    assert breaker.allow(5.0)
    assert breaker.retry_after_s(5.0) == 0.0


def test_a_reopened_breaker_starts_with_a_clean_record() -> None:
    breaker = Breaker("kms", BreakerPolicy(samples_min=4, error_rate=0.5, timeouts_in_a_row=0, open_s=1.0))
    for _ in range(4):
        breaker.failure(0.0)
    assert breaker.state is BreakerState.OPEN
    assert breaker.allow(1.0)
    breaker.success(1.1, 0.1)
    for _ in range(3):
        breaker.failure(1.2)

    assert breaker.state is BreakerState.CLOSED


def test_a_breaker_remembers_a_bounded_number_of_outcomes() -> None:
    breaker = Breaker("kms", BreakerPolicy(samples_max=50, error_rate=0.5, window_s=1e9))
    for n in range(500):
        breaker.success(float(n), 0.1)
    assert len(breaker._samples) == 50

    for n in range(25):
        breaker.failure(500.0 + n)
    assert breaker.state is BreakerState.OPEN


def test_what_is_given_back_to_a_bucket_can_be_taken_again_up_to_its_depth() -> None:
    bucket = TokenBucket("rps", rate=1.0, depth=2.0, now=0.0)
    assert [bucket.try_take(0.0) for _ in range(3)] == [True, True, False]
    bucket.give_back()
    assert [bucket.try_take(0.0) for _ in range(2)] == [True, False]

    for _ in range(5):
        bucket.give_back()
    assert bucket.level(0.0) == 2.0
