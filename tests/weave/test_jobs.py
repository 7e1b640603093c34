"""Several processes find what one finds."""

from __future__ import annotations

import pytest

from penstock import weave
from penstock.weave.jobs import StateTable
from tests.weave.kit import program, random_program


@pytest.mark.parametrize("seed", [3, 9, 14])
def test_two_processes_find_the_same_outcomes_as_one(seed: int) -> None:
    alone = weave.explore(random_program(seed), strategy="hash", until="end")
    together = weave.explore(random_program(seed), strategy="hash", until="end", jobs=2)

    assert together.complete
    assert together.outcomes == alone.outcomes
    assert together.states >= alone.states


def test_two_processes_find_a_bug_and_its_token_replays() -> None:
    report = weave.explore(program("condition_loses_notify"), jobs=2)
    again = weave.replay(program("condition_loses_notify"), report.token)

    assert (report.verdict, report.kind) == ("fails", "deadlock")
    assert again.kind == "deadlock"


def test_the_table_of_states_tells_new_from_known_and_a_full_one_forgets_nothing() -> None:
    table = StateTable(places=8)
    marks = [bytes([number]) * 16 for number in range(1, 5)]

    assert [table.add(mark) for mark in marks] == [True] * 4
    assert [table.add(mark) for mark in marks] == [False] * 4
