"""An hour of figures: what was measured when, bounded in series and bytes, gaps told from zeros."""

from __future__ import annotations

import tracemalloc

import pytest

from penstock.admin.history import BYTES_MAX, COARSE_COUNT, FINE_S, SERIES_MAX, FigureHistory, quantile, shortened


def test_a_second_without_a_value_is_a_gap_and_shifts_nothing() -> None:
    history = FigureHistory()
    for second, value in ((100, 1.0), (101, 2.0), (104, 5.0)):
        history.record(second, {"sent": value})

    assert history.read("5m")["sent"][-6:] == [None, 1.0, 2.0, None, None, 5.0]


def test_zero_is_a_value_and_no_gap() -> None:
    history = FigureHistory()
    history.record(1, {"sent": 0.0})

    assert history.read("5m")["sent"][-1] == 0.0


@pytest.mark.parametrize(("name", "kept"), [("sent", 4.5), ("send_p99", 9.0)])
def test_ten_seconds_keep_their_mean_and_delays_their_largest(name: str, kept: float) -> None:
    history = FigureHistory(peaks=("_p99",))
    for second in range(1000, 1010):
        history.record(second, {name: float(second - 1000)})
    history.record(1010, {name: 1.0})

    assert history.read("1h")[name][-2:] == [kept, 1.0]


def test_five_minutes_and_an_hour_are_kept_and_no_more() -> None:
    history = FigureHistory()
    for second in range(5000):
        history.record(second, {"sent": float(second)})

    fine, coarse = history.read("5m")["sent"], history.read("1h")["sent"]
    assert (len(fine), fine[0], fine[-1]) == (FINE_S, 4700.0, 4999.0)
    assert (len(coarse), coarse[0], coarse[-1]) == (COARSE_COUNT, 1404.0, 4994.0)


def test_what_lies_further_back_than_the_ring_is_not_shown_after_a_long_silence() -> None:
    history = FigureHistory()
    history.record(10, {"sent": 7.0, "seldom": 1.0})
    history.record(10 + FINE_S, {"sent": 8.0})
    history.record(10 + FINE_S + 4000, {"sent": 9.0})

    assert [each for each in history.read("5m")["sent"] if each is not None] == [9.0]
    assert [each for each in history.read("1h")["sent"] if each is not None] == [9.0]
    assert "seldom" not in history.read("1h")


def test_a_clock_that_stands_still_or_goes_back_changes_nothing() -> None:
    history = FigureHistory()
    history.record(10, {"sent": 1.0})
    history.record(10, {"sent": 2.0})
    history.record(9, {"sent": 3.0})

    assert history.read("5m")["sent"][-2:] == [None, 1.0]


def test_too_many_series_forget_the_one_that_was_quiet_longest() -> None:
    history = FigureHistory()
    history.record(1, {"quiet": 1.0})
    history.record(2, {f"s{number}": 1.0 for number in range(SERIES_MAX - 1)} | {"quiet": 0.0})
    history.record(3, {"new": 1.0})

    assert len(history) == SERIES_MAX
    assert "quiet" not in history.read("5m")
    assert "new" in history.read("5m")
    assert history.forgotten == 1


def test_a_full_history_takes_less_than_its_bound() -> None:
    names = [f"topic.in:{'x' * 190}{number}" for number in range(SERIES_MAX)]
    tracemalloc.start()
    try:
        history = FigureHistory()
        for second in range(30):
            history.record(second, dict.fromkeys(names, float(second)))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(history) == SERIES_MAX
    assert taken < BYTES_MAX
    # What the inventory tells is not less than the arrays, and about what is really taken.
    assert taken / 2 < history.bytes_in_use() < BYTES_MAX


def test_series_are_chosen_by_prefix_and_joined_to_fewer_points() -> None:
    history = FigureHistory()
    for second in range(300):
        history.record(second, {"topic.in:a": float(second % 2), "sent": 1.0})

    found = history.read("5m", prefixes=("topic.",), points=60)
    assert list(found) == ["topic.in:a"]
    assert len(found["topic.in:a"]) == 60
    assert found["topic.in:a"][0] == pytest.approx(0.4)


def test_four_digits_are_kept() -> None:
    assert [shortened(value) for value in (0.0, 123_456.0, 0.000123456, -1.23456)] == [
        0.0,
        123_500.0,
        0.0001235,
        -1.235,
    ]


def test_a_quantile_lies_within_the_bucket_it_falls_into() -> None:
    bounds = (0.001, 0.01, 0.1)

    assert quantile(bounds, [0, 0, 0, 0], 0.99) is None
    assert quantile(bounds, [0, 10, 0, 0], 0.5) == pytest.approx(0.0055)
    assert quantile(bounds, [98, 0, 2, 0], 0.99) == pytest.approx(0.055)
    # Nobody measured how far above the last bound it was.
    assert quantile(bounds, [0, 0, 0, 5], 0.5) == 0.1
