"""A webhook becomes one message over kill, lost answer, retry and drain; each step of the code is in Webhook.tla."""

from __future__ import annotations

from functools import cache, partial

import pytest

from penstock import weave
from tests.models.kit import graph, needs_tlc
from tests.models.webhook_model import IGNORES, webhooks

pytestmark = needs_tlc

CASES = [
    pytest.param(("a",), ("kill",), 1, "fifo", id="kill and replay, fifo"),
    pytest.param(("a",), ("kill",), 0, "any", id="kill, any", marks=pytest.mark.full),
    pytest.param(("a",), ("lose", "kill"), 0, "fifo", id="lost answer and kill, fifo"),
    pytest.param(("a",), ("drain",), 0, "fifo", id="drain, fifo"),
    pytest.param(("a",), ("drain",), 0, "any", id="drain, any", marks=pytest.mark.full),
    pytest.param(("a", "b"), ("kill",), 0, "fifo", id="two events and kill, fifo"),
    pytest.param(("a",), ("drain", "kill"), 0, "fifo", id="drain and kill, fifo"),
]


@cache
def explored(events: tuple[str, ...], faults: tuple[str, ...], replays: int, mode: str, planted: str = ""):
    refinement = weave.Refinement(graph("Webhook" if len(events) == 2 else "Webhook_one"))
    report = weave.explore(
        partial(webhooks, events, faults, replays=replays, planted=planted),
        mode=mode,
        ignores=IGNORES,
        refines=refinement,
        seconds=None,
    )
    return report, refinement


@pytest.mark.parametrize(("events", "faults", "replays", "mode"), CASES)
def test_every_step_of_the_bridge_is_a_step_of_the_specification(events, faults, replays: int, mode: str) -> None:
    report, refinement = explored(events, faults, replays, mode)

    assert (report.verdict, report.complete) == ("holds", True), report
    assert refinement.steps > 0


@pytest.mark.parametrize(
    ("planted", "faults", "replays"), [("hasty", (), 0), ("claimless", (), 1), ("claimless", ("kill",), 0)]
)
def test_the_specification_rejects_a_bridge_that_answers_early_or_sends_without_a_claim(
    planted: str, faults, replays: int
) -> None:
    report, _ = explored(("a",), faults, replays, "fifo", planted)

    assert report.verdict == "fails", report
