"""Joined calls: each caller gets its own answer or error in every schedule, and nothing is left behind."""

from __future__ import annotations

from functools import partial

import pytest

from penstock import weave
from tests.models.joining_model import IGNORES, joined

HAPPENS = ["", "cancel", "deadline", "kill", "close", "refusal"]


def explored(happens: str, mode: str, **options):
    return weave.explore(partial(joined, happens, **options), mode=mode, ignores=IGNORES, seconds=None)


@pytest.mark.parametrize("happens", HAPPENS)
def test_each_call_gets_its_own_answer_and_no_place_is_lost(happens: str) -> None:
    report = explored(happens, "fifo")

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize("happens", HAPPENS)
def test_so_it_is_where_one_task_makes_several_requests(happens: str) -> None:
    report = explored(happens, "fifo", large=True, calls=5)

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize(
    "happens",
    [happens if happens in {"", "refusal"} else pytest.param(happens, marks=pytest.mark.full) for happens in HAPPENS],
)
def test_so_it_is_in_any_order(happens: str) -> None:
    report = explored(happens, "any")

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize("happens", ["", "cancel"])
def test_calls_with_one_key_are_done_in_the_order_they_were_made(happens: str) -> None:
    report = explored(happens, "fifo" if happens else "any", keyed=True)

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize(
    ("planted", "happens"),
    [
        ("swaps", ""),
        ("cuts for one", "cancel"),
        ("cuts for one", "deadline"),
        ("ends in the task", "cancel"),
        ("one deadline", "deadline"),
    ],
)
def test_a_planted_bug_is_found(planted: str, happens: str) -> None:
    report = explored(happens, "any", planted=planted)

    assert (report.verdict, report.kind) == ("fails", "assertion"), report
