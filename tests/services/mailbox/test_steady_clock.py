"""The clock of stored times.

A step of the system's clock changes no age, and a corrected clock is followed in the end.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.services.mailbox.steady_clock import SLEW, ClockStamp, SteadyClock, starting_time


def wall_ms(clock: SteadyClock, now_ms: float, system_ms: float) -> int:
    clock.follow(now_ms, system_ms)
    return int(now_ms + clock.offset)


YEAR_2026 = 1_767_225_600_000.0
MINUTE = 60_000.0


@pytest.mark.parametrize("step_ms", [10 * MINUTE, -120 * MINUTE, 8 * 24 * 60 * MINUTE])
def test_step_of_the_systems_clock_changes_no_age(step_ms: float) -> None:
    clock = SteadyClock(0.0, YEAR_2026)
    before = wall_ms(clock, 0.0, YEAR_2026)
    after = wall_ms(clock, MINUTE, YEAR_2026 + MINUTE + step_ms)

    assert abs(after - before - MINUTE) <= MINUTE * SLEW


@given(st.lists(st.tuples(st.floats(0, 1e7), st.floats(-1e10, 1e10)), max_size=40))
def test_time_never_goes_back_and_ages_are_right_to_half_a_percent(steps: list[tuple[float, float]]) -> None:
    clock = SteadyClock(0.0, YEAR_2026)
    now, last = 0.0, wall_ms(clock, 0.0, YEAR_2026)
    first = last
    for passed, away in steps:
        now += passed
        wall = wall_ms(clock, now, YEAR_2026 + now + away)
        assert wall >= last
        last = wall

    assert abs(last - first - now) <= now * SLEW + 2


def test_corrected_clock_is_followed_in_the_end() -> None:
    clock = SteadyClock(0.0, YEAR_2026)
    for minute in range(1, 60 * 24):
        wall = wall_ms(clock, minute * MINUTE, YEAR_2026 + minute * MINUTE + 5 * MINUTE)

    assert wall == YEAR_2026 + minute * MINUTE + 5 * MINUTE


def test_clock_that_was_never_set_is_left_at_once() -> None:
    clock = SteadyClock(0.0, 1000.0)

    assert wall_ms(clock, 1.0, YEAR_2026) == YEAR_2026


def test_each_step_is_told_once() -> None:
    clock = SteadyClock(0.0, YEAR_2026)
    told = [
        clock.stepped_ms(0.0, YEAR_2026),
        clock.stepped_ms(0.0, YEAR_2026 + MINUTE),
        clock.stepped_ms(0.0, YEAR_2026 + MINUTE),
    ]

    assert told == [0.0, MINUTE, 0.0]


def test_restart_on_the_same_boot_counts_the_time_that_really_passed() -> None:
    before = ClockStamp(YEAR_2026, 1000.0, b"boot")

    assert starting_time(before, ClockStamp(YEAR_2026 + 61 * MINUTE, 1000.0 + MINUTE, b"boot")) == (
        YEAR_2026 + MINUTE,
        60 * MINUTE,
    )


def test_restart_after_another_boot_believes_the_system_but_never_goes_back() -> None:
    before = ClockStamp(YEAR_2026, 9000.0, b"one")

    assert starting_time(before, ClockStamp(YEAR_2026 + 5 * MINUTE, 10.0, b"two")) == (YEAR_2026 + 5 * MINUTE, 0.0)
    assert starting_time(before, ClockStamp(YEAR_2026 - 5 * MINUTE, 10.0, b"two")) == (YEAR_2026, -5 * MINUTE)


def test_first_life_begins_with_the_systems_time() -> None:
    assert starting_time(None, ClockStamp(YEAR_2026, 10.0, b"one")) == (YEAR_2026, 0.0)
