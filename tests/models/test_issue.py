"""Minting: nothing without a policy or for a revoked issuer, and every job is answered; each step is in Issue.tla."""

from __future__ import annotations

import os
from functools import cache, partial

import pytest

from penstock import weave
from tests.models.issue_model import IGNORES, fixed_bytes, issue
from tests.models.kit import graph, needs_tlc

pytestmark = needs_tlc

CASES = [
    pytest.param(("policy", "revoke", "rotate"), 1, "fifo", id="all changes, one job, fifo"),
    pytest.param(("policy",), 2, "any", id="policy, two jobs, any"),
    pytest.param(("revoke",), 2, "fifo", id="revoke, two jobs, fifo"),
    pytest.param(("revoke",), 1, "any", id="revoke, one job, any"),
    pytest.param(("policy", "revoke"), 1, "any", id="policy and revoke, one job, any"),
    pytest.param(("rotate",), 1, "any", id="rotate, one job, any", marks=pytest.mark.full),
    pytest.param(("revoke", "rotate"), 2, "fifo", id="revoke and rotate, two jobs, fifo", marks=pytest.mark.full),
]


@pytest.fixture(autouse=True)
def _fixed_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", fixed_bytes)


@cache
def explored(changes: tuple[str, ...], jobs: int, mode: str, *, planted: str = ""):
    refinement = weave.Refinement(graph("Issue" if jobs == 2 else "Issue_one"))
    report = weave.explore(
        partial(issue, changes, jobs=jobs, planted=planted),
        mode=mode,
        ignores=IGNORES,
        threads="prompt",
        refines=refinement,
        seconds=None,
    )
    return report, refinement


@pytest.mark.parametrize(("changes", "jobs", "mode"), CASES)
def test_every_step_of_the_passport_is_a_step_of_the_specification(changes, jobs: int, mode: str) -> None:
    report, refinement = explored(changes, jobs, mode)

    assert (report.verdict, report.complete) == ("holds", True), report
    assert refinement.steps > 0


@pytest.mark.parametrize("mode", ["fifo", "any"])
def test_the_specification_rejects_an_issuance_that_does_not_judge_again(mode: str) -> None:
    report, _ = explored(("revoke",), 1, mode, planted="hasty")

    assert report.verdict == "fails"
    assert "revoked = True" in report.message


def test_the_specification_rejects_an_issuance_that_signs_by_a_key_no_longer_in_force() -> None:
    report, _ = explored(("rotate",), 1, "fifo", planted="stale")

    assert report.verdict == "fails"
    assert "generation = 2" in report.message


def test_steps_the_code_never_takes_are_failures_of_the_key_store_and_changes_nobody_asked_for() -> None:
    """The model's key store does not fail, so a decided job is given up on only when its issuer was revoked."""
    _, refinement = explored(("policy", "revoke", "rotate"), 1, "fifo")
    unused = refinement.unused()

    assert unused
    assert {step.split(" from ")[0] for step in unused} <= {
        "GiveUp",
        "Decide",
        "Hand",
        "Refuse",
        "Adopt",
        "Revoke",
        "Rotate",
        "Next",
    }
    assert any(step.startswith("GiveUp") and "revoked = False" in step for step in unused)
