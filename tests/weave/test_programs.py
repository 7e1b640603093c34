"""The bugs every tool of this kind must find, in both modes, and their right twins proven to hold."""

from __future__ import annotations

import asyncio

import pytest

from penstock import weave
from tests.weave.kit import WRONG, program

BOTH = pytest.mark.parametrize("mode", ["fifo", "any"])


@BOTH
@pytest.mark.parametrize("name", WRONG)
def test_the_bug_is_found_and_its_schedule_fails_again(name: str, mode: str) -> None:
    report = weave.explore(program(name), mode=mode)
    again = weave.replay(program(name), report.token)

    assert (report.verdict, report.kind) == ("fails", WRONG[name])
    assert report.trace
    assert report.token.startswith(mode)
    assert (again.verdict, again.kind, again.trace) == ("fails", report.kind, report.trace)
    assert "depends on first-in-first-out" not in report.message


@BOTH
@pytest.mark.parametrize("name", [f"{name}_right" for name in WRONG])
def test_the_right_twin_holds_in_every_schedule(name: str, mode: str) -> None:
    report = weave.explore(program(name), mode=mode)

    assert (report.verdict, report.complete, report.token) == ("holds", True, ""), report
    assert not report.notes


@pytest.mark.parametrize("name", [*WRONG, *(f"{name}_right" for name in WRONG)])
def test_hash_and_auto_find_the_same_outcomes(name: str) -> None:
    hashed = weave.explore(program(name), strategy="hash", until="end")
    chosen = weave.explore(program(name), strategy="auto", until="end")

    assert hashed.complete
    assert chosen.complete
    assert chosen.outcomes == hashed.outcomes


@pytest.mark.parametrize(
    "name", [name for name in WRONG if name.startswith(("condition", "wait_for", "anyio", "janus", "task_group"))]
)
def test_the_library_bugs_do_not_show_in_the_order_of_the_stock_loop(name: str) -> None:
    """Otherwise any test would find them."""
    report = weave.explore(program(name), strategy="delay:0")

    assert report.verdict == "holds"


def test_a_failure_that_asyncio_itself_never_shows_says_so() -> None:
    assert weave.explore(program("leans_on_order"), mode="fifo").verdict == "holds"

    report = weave.explore(program("leans_on_order"), mode="any")

    assert report.verdict == "fails"
    assert "depends on first-in-first-out order" in report.message


@pytest.mark.real_loop(loop="asyncio")
async def test_the_programs_run_on_the_stock_loop_too() -> None:
    await program("lost_update_right")()
    with pytest.raises(AssertionError):
        await program("lost_update")()
    assert asyncio.get_running_loop().time() > 0
