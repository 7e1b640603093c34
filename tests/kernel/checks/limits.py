"""What limits promise: limiter, byte budget, bucket, backoff, retry budget, breaker."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.breaker import BreakerPolicy, BreakerState

_SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def check_permits_are_taken_all_together_or_not_at_all(make) -> None:
    @_SETTINGS
    @given(st.integers(1, 20), st.lists(st.integers(1, 8), max_size=30))
    def law(capacity: int, wishes: list[int]) -> None:
        limiter, held, refused = make("inflight", capacity), [], 0
        for wish in wishes:
            if limiter.try_acquire_many(wish):
                held.append(wish)
            else:
                refused += 1
                if held:
                    limiter.release(held.pop())
            assert limiter.in_use == sum(held)
            assert limiter.in_use <= capacity
        assert limiter.refused == refused

    law()


def check_permits_are_given_back_at_most_once(make) -> None:
    limiter = make("inflight", 4)
    limiter.acquire_or_busy(3)
    limiter.release(2)
    with pytest.raises(RuntimeError):
        limiter.release(2)
    assert limiter.in_use == 1


def check_no_share_takes_more_than_its_part_and_the_sum_holds(make) -> None:
    @_SETTINGS
    @given(st.integers(2, 100), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=40))
    def law(capacity: int, steps: list[tuple[int, int]]) -> None:
        budget = make(capacity)
        shares = [budget.share() for _ in range(3)]
        for which, count in steps:
            share = shares[which]
            if not share.try_take(count) and share.in_use:
                share.give(share.in_use)
            assert all(0 <= s.in_use <= capacity // 2 for s in shares)
            assert budget.in_use == sum(s.in_use for s in shares)
            assert budget.in_use <= capacity
        with pytest.raises(RuntimeError):
            shares[0].give(shares[0].in_use + 1)

    law()


def check_a_bucket_never_lets_more_through_than_rate_and_depth(make) -> None:
    @_SETTINGS
    @given(st.integers(1, 50), st.integers(1, 50), st.lists(st.floats(0.0, 2.0), max_size=60))
    def law(rate: int, depth: int, pauses: list[float]) -> None:
        bucket, at, passed = make("rps", rate=rate, depth=depth, now=0.0), 0.0, 0
        for pause in pauses:
            at += pause
            burst = 0
            while bucket.try_take(at):
                passed += 1
                burst += 1
                assert burst <= depth
                assert passed <= depth + rate * at + 1e-6
            wait_s = bucket.wait_s(at)
            assert bucket.level(at + wait_s * 0.9) < 1.0
            assert bucket.level(at + wait_s) == pytest.approx(1.0)

    law()


def check_a_clock_that_went_back_gives_no_tokens(make) -> None:
    bucket = make("rps", rate=10.0, depth=2.0, now=100.0)
    assert [bucket.try_take(100.0) for _ in range(3)] == [True, True, False]

    assert not bucket.try_take(50.0)
    assert not bucket.try_take(100.0), "the step back must not be paid for on the way forward"


SCHEDULES = {
    "interop": [(0.05, 0.1), (0.2, 0.4), (0.8, 1.6), (0.8, 1.6)],
    "calls": [(0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 0.8), (0.8, 1.6), (1.6, 2.0), (2.0, 2.0)],
    "mailbox": [(0.0, 0.2), (0.0, 0.4), (0.0, 0.8), (0.0, 1.6)],
}


def check_delays_stay_within_the_seeds_windows(make) -> None:
    rng = random.Random(7)
    for name, windows in SCHEDULES.items():
        schedule = make(name)
        for attempt, (low, high) in enumerate(windows):
            drawn = [schedule.delay(attempt, rng) for _ in range(300)]
            assert low <= min(drawn)
            assert max(drawn) <= high
            assert max(drawn) - min(drawn) >= 0.8 * (high - low), "no jitter to speak of"
        assert schedule.delay(10_000, rng) <= schedule.cap_s


def check_retries_are_a_tenth_of_the_calls_but_never_under_three_a_second(make) -> None:
    @_SETTINGS
    @given(st.lists(st.integers(0, 600), min_size=12, max_size=25))
    def law(calls_by_second: list[int]) -> None:
        budget, allowed = make(), []
        for second, calls in enumerate(calls_by_second):
            for _ in range(calls):
                budget.record_call(second + 0.5)
            granted = 0
            while budget.allow(second + 0.5):
                granted += 1
                assert granted < 10_000
            allowed.append(granted)
            recent_calls = sum(calls_by_second[max(0, second - 9) : second + 1])
            recent = sum(allowed[-10:])
            limit = max(0.1 * recent_calls, 30)
            carried = sum(allowed[-10:-1])
            assert recent <= max(limit + 1, carried)
            assert recent >= min(limit, 30) or carried > limit

    law()


def _opened(make, **policy):
    breaker = make("kms", BreakerPolicy(samples_min=4, error_rate=0.5, timeouts_in_a_row=3, open_s=5.0, **policy))
    for _ in range(3):
        assert breaker.allow(100.0)
        breaker.failure(100.0, timed_out=True)
    assert breaker.state is BreakerState.OPEN
    return breaker


def check_timeouts_in_a_row_open_a_breaker(make) -> None:
    breaker = _opened(make)
    assert not breaker.allow(104.9)
    assert breaker.retry_after_s(101.0) == pytest.approx(4.0)


def check_only_so_many_probes_go_out(make) -> None:
    for probes in (1, 2, 3):
        breaker = _opened(make, probes=probes)
        assert [breaker.allow(105.0 + n) for n in range(5)] == [n < probes for n in range(5)]
        for _ in range(probes):
            assert breaker.state is BreakerState.HALF_OPEN
            breaker.success(110.0, 0.1)
        assert breaker.state is BreakerState.CLOSED


def check_a_failed_probe_opens_again_for_the_full_time(make) -> None:
    breaker = _opened(make)
    assert breaker.allow(105.0)
    breaker.failure(106.0, elapsed_s=1.0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allow(110.9)
    assert breaker.allow(111.0)
    assert breaker.opened == 2


def check_an_answer_from_before_the_opening_is_no_probe(make) -> None:
    for late in (
        lambda breaker: breaker.success(106.0, 50.0),
        lambda breaker: breaker.failure(106.0, elapsed_s=50.0),
    ):
        breaker = _opened(make)
        assert breaker.allow(105.0)
        late(breaker)
        assert breaker.state is BreakerState.HALF_OPEN


def check_an_abandoned_probe_frees_its_place(make) -> None:
    breaker = _opened(make)
    assert breaker.allow(105.0)
    assert not breaker.allow(105.0)
    breaker.abandon()
    assert breaker.allow(105.0)


def check_the_error_rate_of_the_window_opens_a_breaker(make) -> None:
    breaker = make("rpc", BreakerPolicy(samples_min=10, error_rate=0.5, window_s=10.0, timeouts_in_a_row=0))
    for _ in range(9):
        breaker.failure(100.0)
    assert breaker.state is BreakerState.CLOSED, "too few samples to judge"
    for _ in range(9):
        breaker.success(111.0, 0.1)
    breaker.failure(111.0)
    assert breaker.state is BreakerState.CLOSED, "the failures are outside the window"
    for _ in range(8):
        breaker.failure(112.0)
    assert breaker.state is BreakerState.OPEN


def check_a_slow_p95_opens_a_breaker(make) -> None:
    breaker = make("kms", BreakerPolicy(samples_min=20, p95_s=0.5, error_rate=0.0))
    for n in range(20):
        breaker.success(100.0, 9.0 if n == 0 else 0.1)
    assert breaker.state is BreakerState.CLOSED, "one in twenty is not the 95th percentile"
    breaker.success(100.0, 9.0)
    assert breaker.state is BreakerState.OPEN
