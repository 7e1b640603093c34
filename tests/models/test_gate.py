"""Admission against drain: slots and places are bounded, everybody who waits is told; each step is one of Gate.tla."""

from __future__ import annotations

from functools import partial

import pytest

from penstock import weave
from tests.models.gate_model import IGNORES, gate
from tests.models.kit import graph, needs_tlc

pytestmark = needs_tlc


def explored(mode: str, **options):
    refinement = weave.Refinement(graph("Gate"))
    report = weave.explore(partial(gate, 3, **options), mode=mode, ignores=IGNORES, refines=refinement, seconds=None)
    return report, refinement


@pytest.mark.parametrize(
    ("mode", "leaver"),
    [("fifo", 0), ("fifo", 2), ("any", 0), pytest.param("any", 2, marks=pytest.mark.full)],
)
def test_every_step_of_the_gate_is_a_step_of_the_specification(mode: str, leaver: int) -> None:
    report, refinement = explored(mode, leaver=leaver)

    assert (report.verdict, report.complete) == ("holds", True), report
    if mode == "any":
        # In this model at most the second client goes away.
        assert refinement.visited == set(refinement.graph.states)
        assert all(step.startswith("Leave") for step in refinement.unused())


@pytest.mark.parametrize("mode", ["fifo", "any"])
def test_a_gate_that_does_not_hand_its_slots_on_leaves_somebody_waiting(mode: str) -> None:
    report, _ = explored(mode, planted="forgets")

    assert (report.verdict, report.kind) == ("fails", "deadlock")


def test_the_specification_rejects_a_gate_in_which_arrivals_overtake() -> None:
    report, _ = explored("any", planted="overtakes")

    assert report.verdict == "fails"
    assert "refinement: no step of the specification leads" in report.message
