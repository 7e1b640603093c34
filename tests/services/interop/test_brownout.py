"""Brownout turns on at the seed's thresholds, sheds for its own reasons only, and comes back with hysteresis."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.interop.brownout import Brownout, BrownoutLimits
from tests.services.interop.brownouts import ASKED, Observed, observe

NOW = 10_000.0


def _answers(brownout, good, bad, *, now=NOW, status=500):
    for _ in range(good):
        brownout.note_answer(now, 202)
    for _ in range(bad):
        brownout.note_answer(now, status)


@pytest.mark.parametrize(
    ("good", "bad", "active"), [(99, 1, True), (100, 1, False), (98, 1, False), (990, 10, True), (991, 9, False)]
)
def test_one_percent_of_a_hundred_answers_turns_it_on(good, bad, active):
    brownout = Brownout()
    _answers(brownout, good, bad)

    assert brownout.look(NOW, 0.0).active is active


@pytest.mark.parametrize("status", [400, 401, 404, 413, 429, 503])
def test_callers_faults_and_own_503_are_no_samples(status):
    brownout = Brownout()
    _answers(brownout, 99, 1)
    _answers(brownout, 0, 100_000, status=status)

    state = brownout.look(NOW, 0.0)

    assert state.reasons == ("error_rate",)
    assert Brownout().look(NOW, 0.0).active is False


def test_only_bad_requests_never_turn_it_on():
    brownout = Brownout()
    _answers(brownout, 0, 5000, status=401)

    assert not brownout.look(NOW, 0.0).active


def test_errors_count_for_five_minutes():
    brownout = Brownout()
    _answers(brownout, 99, 1)

    assert brownout.look(NOW + 299, 0.0).active
    assert not Brownout().look(NOW, 0.0).active

    late = Brownout()
    _answers(late, 99, 1)
    assert not late.look(NOW + 300, 0.0).active


def test_failed_calls_count_as_errors():
    brownout = Brownout()
    for n in range(100):
        brownout.note_call(NOW, 0.001, failed=n == 0)

    assert brownout.look(NOW, 0.0).reasons == ("error_rate",)


@pytest.mark.parametrize(("slow", "active"), [(6, True), (5, False)])
def test_p95_of_half_a_second_turns_it_on(slow, active):
    brownout = Brownout()
    for n in range(100):
        brownout.note_call(NOW, 0.5 if n < slow else 0.499, failed=False)

    assert ("p95" in brownout.look(NOW, 0.0).reasons) is active


def test_few_slow_calls_are_no_percentile():
    brownout = Brownout()
    for _ in range(19):
        brownout.note_call(NOW, 9.0, failed=False)

    assert not brownout.look(NOW, 0.0).active


def test_slow_calls_count_for_one_minute():
    brownout = Brownout()
    for _ in range(50):
        brownout.note_call(NOW, 9.0, failed=False)

    assert "p95" in brownout.look(NOW + 59, 0.0).reasons
    fresh = Brownout()
    for _ in range(50):
        fresh.note_call(NOW, 9.0, failed=False)
    assert not fresh.look(NOW + 60, 0.0).active


def test_queue_has_to_be_high_for_a_whole_minute():
    brownout = Brownout()
    found = [brownout.look(NOW + n, 0.81).active for n in range(61)]

    assert found == [False] * 60 + [True]


def test_queue_that_was_low_once_starts_anew():
    brownout = Brownout()
    fills = [0.81] * 50 + [0.8] + [0.81] * 60

    assert not any(brownout.look(NOW + n, fill).active for n, fill in enumerate(fills))


def test_it_holds_for_half_a_minute_after_the_last_trigger():
    brownout = Brownout(BrownoutLimits(error_window_s=5, p95_window_s=5))
    _answers(brownout, 99, 1)
    states = [brownout.look(NOW + n, 0.0) for n in range(40)]

    # The last second in which the errors counted was the fourth.
    assert [state.active for state in states] == [True] * 34 + [False] * 6


def test_it_clears_only_at_four_fifths():
    brownout = Brownout(BrownoutLimits(hold_s=0))
    for n in range(61):
        brownout.look(NOW + n, 0.9)

    assert brownout.state.active
    assert brownout.look(NOW + 62, 0.65).active
    assert not brownout.look(NOW + 63, 0.64).active


def test_slow_calls_clear_only_below_four_hundred_milliseconds():
    brownout = Brownout(BrownoutLimits(hold_s=0, p95_window_s=5))
    for _ in range(50):
        brownout.note_call(NOW, 0.5, failed=False)
    assert brownout.look(NOW, 0.0).active

    for second, elapsed, active in ((10, 0.4, True), (20, 0.399, False)):
        for _ in range(50):
            brownout.note_call(NOW + second, elapsed, failed=False)
        assert brownout.look(NOW + second, 0.0).active is active


def test_since_is_when_it_began_and_when_it_ended():
    brownout = Brownout(BrownoutLimits(error_window_s=5, p95_window_s=5, hold_s=0))
    _answers(brownout, 99, 1)

    assert [brownout.look(NOW + n, 0.0).since for n in (0, 3, 6, 7)] == [NOW, NOW, NOW + 6, NOW + 6]


@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from([202, 401, 500, 503, 504]), st.floats(0, 1)), max_size=200)
)
@settings(max_examples=100, deadline=None)
def test_decision_equals_counting_everything_again(steps):
    brownout, now, seen = Brownout(BrownoutLimits(samples_min=3)), NOW, []
    for gap, status, fill in steps:
        now += gap
        brownout.note_answer(now, status)
        seen.append((int(now), status))
        recent = [code for at, code in seen if int(now) - 300 < at <= int(now) and code in (202, 500, 504)]
        bad = len([code for code in recent if code != 202])

        expected = len(recent) >= 3 and bad >= 0.01 * len(recent)
        was_active = brownout.state.active

        state = brownout.look(now, min(fill, 0.8))

        assert state.active is (expected or (was_active and state.active))
        assert not expected or state.reasons == ("error_rate",)


@pytest.mark.real_loop
@pytest.mark.parametrize(("reason", "ends_after_s"), [("error_rate", 329), ("p95", 89), ("queue_pressure", 30)])
async def test_bridge_in_brownout_serves_reads_and_small_webhooks_and_sheds_the_rest(reason, ends_after_s):
    observed = await observe(reason)

    everything = f"{ASKED}/{ASKED}"
    assert observed == Observed(
        below_the_limit="off",
        at_the_limit=reason,
        reads_served=everything,
        small_webhooks_accepted=everything,
        large_webhooks_shed=everything,
        puts_shed=everything,
        readyz="503 bridge",
        readyz_read=200,
        ends_after_s=ends_after_s,
        readyz_after=200,
        put_after=202,
    )
