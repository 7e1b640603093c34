"""Each strategy checks the others: what one finds, all of them find."""

from __future__ import annotations

import asyncio
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import weave
from penstock.weave.hashing import HashSearch
from penstock.weave.search import ExploreSettings, Search
from tests.weave.kit import program, random_program


class Naive(HashSearch):
    """Every schedule, none left out."""

    def is_new(self, mark: bytes) -> bool:
        self.seen.add(mark)
        return True


def every_outcome(program) -> tuple[set[str], int]:
    search = Search(program, ExploreSettings(until="end", schedules_max=3_000))
    Naive().search(search)
    return set(search.outcomes), search.progress.schedules


SEEDS_SMALL = (1, 2, 4, 6, 8, 10, 17, 20, 21)


@pytest.mark.parametrize("seed", SEEDS_SMALL)
def test_pruning_leaves_no_outcome_out(seed: int) -> None:
    outcomes, schedules = every_outcome(random_program(seed))
    hashed = weave.explore(random_program(seed), strategy="hash", until="end")

    assert set(hashed.outcomes) == outcomes
    assert hashed.schedules <= schedules


@pytest.mark.parametrize("seeds", [range(start, start + 12) for start in range(0, 48, 12)], ids=str)
def test_hash_and_dpor_find_the_same_outcomes(seeds: range) -> None:
    for seed in seeds:
        hashed = weave.explore(random_program(seed), strategy="hash", until="end")
        reduced = weave.explore(random_program(seed), strategy="dpor", until="end")

        assert hashed.complete, seed
        assert reduced.complete, seed
        assert reduced.outcomes == hashed.outcomes, seed


def test_auto_takes_dpor_only_where_all_shared_state_is_tracked() -> None:
    tracked = weave.explore(random_program(3), strategy="auto")
    untracked = weave.explore(program("lost_update_right"), strategy="auto")

    assert (tracked.strategy, untracked.strategy) == ("dpor", "hash")


def test_dpor_refuses_what_it_cannot_see() -> None:
    report = weave.explore(program("check_then_act_right"), strategy="dpor")

    assert report.verdict == "cut"
    assert "not tracked" in report.message


def test_delay_bounding_finds_a_bug_of_one_departure_and_claims_no_proof() -> None:
    found = weave.explore(program("wait_for_swallows_cancel"), strategy="delay:1")
    missed = weave.explore(program("wait_for_swallows_cancel"), strategy="delay:0")

    assert found.verdict == "fails"
    assert (missed.verdict, missed.complete) == ("holds", False)


def test_random_schedules_are_the_same_in_every_search() -> None:
    first, second = (weave.explore(program("condition_loses_notify"), strategy="random:200") for _ in range(2))

    assert first.verdict == "fails"
    assert (first.token, first.schedules) == (second.token, second.schedules)


def test_two_searches_print_equal_figures() -> None:
    def figures():
        report = weave.explore(random_program(9), strategy="hash", until="end")
        return report.schedules, report.states, report.steps, report.outcomes

    assert figures() == figures()


@given(st.data())
def test_hypothesis_draws_schedules(data) -> None:
    """A right program holds under whatever Hypothesis draws; see the next test for a wrong one."""
    weave.check_drawn(program("lost_update_right"), data)


def test_hypothesis_finds_a_bug() -> None:
    @given(st.data())
    def search(data) -> None:
        weave.check_drawn(program("wait_for_swallows_cancel"), data)

    with pytest.raises(weave.WeaveFailure, match="lives on"):
        search()


@pytest.mark.parametrize("name", ["delay", "random:0", "delay:x", "best"])
def test_a_strategy_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(weave.BadOption):
        weave.explore(program("lost_update"), strategy=name)


def test_which_locals_are_bound_is_part_of_the_state() -> None:
    async def branching() -> str:
        order: list[bool] = []

        async def note(value: bool) -> None:
            order.append(value)

        await asyncio.gather(note(True), note(False))
        first = order[0]
        order.clear()
        if first:
            a = 1
        else:
            b = 1
        del first
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        try:
            return f"a is {a}"
        except UnboundLocalError:
            return f"b is {b}"

    report = weave.explore(branching, strategy="hash")

    assert report.outcomes == ("returned 'a is 1'", "returned 'b is 1'")


def test_what_is_written_into_a_buffer_is_part_of_the_state() -> None:
    async def program() -> str:
        text = io.StringIO()

        async def write(word: str) -> None:
            text.write(word)

        await asyncio.gather(write("a"), write("b"))
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        return text.getvalue()

    report = weave.explore(program, strategy="hash")

    assert report.outcomes == ("returned 'ab'", "returned 'ba'")
