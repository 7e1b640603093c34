"""The kernel's drain: accepted is finished, nothing leaks, in every schedule; and each step is one of Drain.tla."""

from __future__ import annotations

from functools import partial

import pytest

from penstock import weave
from tests.models.drain_model import IGNORES, drain
from tests.models.kit import graph, needs_tlc

# No limit of seconds: how long it takes says how busy the machine is.
explore = partial(weave.explore, ignores=IGNORES, seconds=None)


@pytest.mark.parametrize("mode", ["fifo", "any"])
@pytest.mark.parametrize(("jobs", "workers"), [(1, 1), (3, 1), (2, 2)])
def test_a_drain_finishes_what_was_accepted(jobs: int, workers: int, mode: str) -> None:
    report = explore(partial(drain, jobs, workers), mode=mode)

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize("mode", ["fifo", "any"])
def test_the_worker_loop_that_breaks_on_stop_loses_a_job(mode: str) -> None:
    report = explore(partial(drain, 2, 1, planted=True), mode=mode)

    assert report.verdict == "fails", report
    assert report.kind == "assertion"


def test_a_full_channel_refuses_and_the_drain_is_clean_all_the_same() -> None:
    report = explore(partial(drain, 3, 1, refuses=True))

    assert (report.verdict, report.complete) == ("holds", True), report


@needs_tlc
def test_every_step_of_the_kernel_is_a_step_of_the_specification() -> None:
    refinement = weave.Refinement(graph("Drain"))
    report = explore(partial(drain, 3, 2), refines=refinement)

    assert (report.verdict, report.complete) == ("holds", True), report
    assert refinement.visited == set(refinement.graph.states)
    # A worker that finishes a job takes the next one in the same step, so nothing comes between the two. Where the
    # third job was refused, that is the only way to have one of the others left in the channel and none in hand.
    assert len(refinement.unused()) == 2, refinement.unused()
    assert all("queue = (1,), taken = {}" in step for step in refinement.unused())


@needs_tlc
def test_the_specification_rejects_the_worker_loop_that_breaks_on_stop() -> None:
    refinement = weave.Refinement(graph("Drain"))
    report = explore(partial(drain, 3, 2, planted=True), refines=refinement)

    assert report.verdict == "fails"
    assert "refinement: no step of the specification leads" in report.message
