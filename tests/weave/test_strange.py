"""A program that cannot be explored gets a verdict and a sentence; nothing hangs, and nothing of a run outlives it."""

from __future__ import annotations

import time

import pytest

from penstock import weave
from tests.weave.programs import strange


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("opens_socket", "opens a socket"),
        ("connects", "opens a socket"),
        ("starts_thread", "starts a thread"),
        ("sleeps_for_real", "sleeps in real time"),
    ],
)
def test_what_leaves_the_program_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    report = weave.explore(getattr(strange, name))

    assert report.verdict == "cut"
    assert not report.complete
    assert sentence in report.message


def test_reading_the_wall_clock_is_told() -> None:
    report = weave.explore(strange.reads_wall_clock, schedules_max=50)

    assert any("reads the wall clock" in note and "strange.py" in note for note in report.notes)


def test_a_program_that_is_not_deterministic_is_told_why() -> None:
    report = weave.explore(strange.throws_dice)

    assert report.verdict == "cut"
    assert "not deterministic" in report.message
    assert "draws random numbers" in report.message


def test_a_step_that_never_ends_is_cut_in_time() -> None:
    began = time.monotonic()
    report = weave.explore(strange.never_yields, seconds=0.5)

    assert report.verdict == "cut"
    assert "cut after 0.5 seconds" in report.message
    # A generous bound: without the alarm it would never end.
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("options", [{"schedules_max": 200}, {"seconds": 0.5}])
def test_a_program_that_is_too_big_is_cut(options) -> None:
    report = weave.explore(strange.too_big, **options)

    assert (report.verdict, report.complete) == ("cut", False)
    assert "cut after" in report.message


@pytest.mark.parametrize("name", ["polls_for_ever", "ticks_for_ever"])
@pytest.mark.parametrize("mode", ["fifo", "any"])
def test_a_program_that_never_ends_is_a_livelock(name: str, mode: str) -> None:
    report = weave.explore(getattr(strange, name), mode=mode)

    assert (report.verdict, report.kind) == ("fails", "livelock")


def test_polling_that_ends_in_a_fair_order_holds() -> None:
    """An order that never lets the other task run is not one a loop would take."""
    report = weave.explore(strange.polls_until_set)

    assert (report.verdict, report.complete) == ("holds", True)


def test_module_state_that_outlives_a_run_is_named() -> None:
    report = weave.explore(strange.counts_globally)

    told = [note for note in report.notes if "outlives a run" in note] or [report.message]
    assert "counter" in told[0]


def test_state_inside_c_objects_is_named_and_not_pruned() -> None:
    report = weave.explore(strange.holds_c_state)

    assert (report.verdict, report.complete) == ("holds", True)
    assert len(report.outcomes) == 2
    assert any("HASH" in note for note in report.notes)


def test_work_in_a_thread_runs_as_an_outside_event() -> None:
    """In asyncio's own order a thread's answer joins behind what is ready; any order may overtake."""
    orderly = weave.explore(strange.works_in_thread, mode="fifo")
    overtaking = weave.explore(strange.works_in_thread, mode="any")

    assert orderly.complete
    assert orderly.outcomes == ("returned ['loop', 'thread']",)
    assert overtaking.complete
    assert overtaking.outcomes == ("returned ['loop', 'thread']", "returned ['thread', 'loop']")


def test_output_is_discarded_while_exploring_and_shown_in_a_replay(capsys) -> None:
    weave.explore(strange.prints)
    assert capsys.readouterr().out == ""

    weave.replay(strange.prints, "any.da8a")
    assert capsys.readouterr().out == "a word from the program\n"


def test_what_runs_while_a_dropped_run_is_closed_says_nothing(capsys) -> None:
    report = weave.explore(strange.tidies_up_loudly)

    assert report.kind == "assertion"
    assert capsys.readouterr() == ("", "")
