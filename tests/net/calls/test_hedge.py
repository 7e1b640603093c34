"""When a second request is worth its cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.net.calls.hedge import SAMPLES_MIN, HedgeBudget, LatencyTail


def test_nothing_is_late_before_enough_was_seen() -> None:
    tail = LatencyTail()
    for _ in range(SAMPLES_MIN - 1):
        tail.observe(1.0)

    assert tail.p95_s is None


def test_the_percentile_follows_what_is_seen() -> None:
    tail = LatencyTail()
    for number in range(256):
        tail.observe((number % 100) / 1000)
    assert tail.p95_s is not None
    assert 0.093 <= tail.p95_s <= 0.097
    for _ in range(256):
        tail.observe(0.5)

    assert tail.p95_s == 0.5


def test_what_is_very_fast_is_never_late_at_once() -> None:
    tail = LatencyTail()
    for _ in range(SAMPLES_MIN):
        tail.observe(0.0)

    assert tail.p95_s == 0.001


@given(st.lists(st.booleans(), max_size=400))
def test_hedges_never_exceed_their_share_of_the_calls(wanted: list[bool]) -> None:
    budget, hedges = HedgeBudget(), 0
    for calls, wants in enumerate(wanted, 1):
        budget.record_call()
        hedges += wants and budget.take()

        assert hedges <= calls * 0.05 + 1e-9


def test_a_calm_hour_pays_for_no_storm() -> None:
    budget = HedgeBudget()
    for _ in range(100_000):
        budget.record_call()

    assert sum(budget.take() for _ in range(100)) == 8
