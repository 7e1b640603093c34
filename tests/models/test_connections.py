"""The client's connections in every schedule: nobody waits for ever, no place is lost, a closed one dials no more."""

from __future__ import annotations

from functools import partial

import pytest

from penstock import weave
from penstock.net.calls.pool import OriginPool
from tests.models.connections_model import IGNORES, connections

CASES = [("cancel",), ("cut",), ("hang up",), ("hang up", "cut"), ("cancel", "cut")]


def explored(happens: tuple[str, ...], mode: str, *, planted: bool = False):
    program = partial(connections, happens, planted=planted)
    return weave.explore(program, mode=mode, ignores=IGNORES, seconds=None, strategy="hash")


@pytest.mark.parametrize("happens", CASES)
def test_places_are_kept_in_every_schedule_of_asyncio(happens: tuple[str, ...]) -> None:
    report = explored(happens, "fifo")

    assert (report.verdict, report.complete) == ("holds", True), report
    assert not report.notes


@pytest.mark.parametrize(
    "happens", [pytest.param(case, marks=pytest.mark.full) if len(case) > 1 else case for case in CASES]
)
def test_places_are_kept_in_any_order(happens: tuple[str, ...]) -> None:
    report = explored(happens, "any")

    assert (report.verdict, report.complete) == ("holds", True), report


def test_a_pool_that_loses_what_it_handed_to_a_cancelled_caller_is_found() -> None:
    assert explored(("cancel",), "fifo", planted=True).verdict == "fails"


def test_a_pool_that_dials_after_it_was_closed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OriginPool, "_check_open", lambda pool: None)

    report = explored(("hang up", "cut"), "fifo")

    assert report.verdict == "fails"
    assert "a closed client dials" in report.message
