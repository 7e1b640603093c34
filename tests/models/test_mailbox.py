"""A lease against its end: acked once, never delivered after the ack, dead once; each step is one of Mailbox.tla."""

from __future__ import annotations

from functools import partial

import pytest

from penstock import weave
from tests.models.kit import graph, needs_tlc
from tests.models.mailbox_model import IGNORES, lease

pytestmark = needs_tlc


def explored(action: str, mode: str, *, planted: bool = False, schedules_max: int = 1_000_000):
    refinement = weave.Refinement(graph("Mailbox_one"))
    program = partial(lease, action, planted=planted)
    report = weave.explore(
        program,
        mode=mode,
        ignores=IGNORES,
        threads="prompt",
        refines=refinement,
        seconds=None,
        schedules_max=schedules_max,
    )
    return report, refinement


@pytest.mark.parametrize("action", ["ack", "nack"])
def test_every_step_of_the_mailbox_is_a_step_of_the_specification(action: str) -> None:
    report, refinement = explored(action, "fifo")

    assert (report.verdict, report.complete) == ("holds", True), report
    assert refinement.steps > 0


def test_all_three_ends_of_a_lease_are_seen() -> None:
    """The first client acks in time, or the second does, or the message is dead after two leases."""
    report, _ = explored("ack", "fifo")

    assert len(report.outcomes) == 3


@pytest.mark.full
def test_any_order_of_the_mailboxs_steps_stays_inside_the_specification() -> None:
    """There are too many to try all of them; those with the fewest departures come first."""
    report, _ = explored("ack", "any", schedules_max=3_000)

    assert report.verdict in {"holds", "cut"}, report


def test_a_shard_that_takes_any_receipt_is_caught() -> None:
    report, _ = explored("ack", "fifo", planted=True)

    assert report.verdict == "fails"
