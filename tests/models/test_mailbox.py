"""A lease against its end, a kill, a stop: acked once, never delivered after, dead once; all steps in Mailbox.tla."""

from __future__ import annotations

from functools import cache, partial

import pytest

from penstock import weave
from tests.models.kit import graph, needs_tlc
from tests.models.mailbox_model import IGNORES, lease

pytestmark = needs_tlc


@cache
def explored(action: str, mode: str, *, happens: str = "", planted: str = ""):
    refinement = weave.Refinement(graph("Mailbox_one"))
    program = partial(lease, action, happens=happens, planted=planted)
    report = weave.explore(
        program, mode=mode, ignores=IGNORES, threads="prompt", refines=refinement, seconds=None, schedules_max=1_000_000
    )
    return report, refinement


ENOUGH_FOR_A_NIGHT = [
    ("ack", "shard_worker", "fifo"),
    ("ack", "writer", "fifo"),
    ("ack", "stop", "fifo"),
    ("nack", "writer", "fifo"),
    ("extend", "shard_worker", "fifo"),
    ("ack", "", "any"),
    ("extend", "", "any"),
]


@pytest.mark.parametrize("action", ["ack", "nack", "extend"])
def test_every_step_of_the_mailbox_is_a_step_of_the_specification(action: str) -> None:
    report, refinement = explored(action, "fifo")

    assert (report.verdict, report.complete) == ("holds", True), report
    assert refinement.steps > 0


@pytest.mark.full
@pytest.mark.parametrize(("action", "happens", "mode"), ENOUGH_FOR_A_NIGHT)
def test_kills_a_stop_and_any_order_stay_inside_the_specification(action: str, happens: str, mode: str) -> None:
    report, refinement = explored(action, mode, happens=happens)

    assert (report.verdict, report.complete) == ("holds", True), report
    assert refinement.steps > 0


def test_all_three_ends_of_a_lease_are_seen() -> None:
    """The first client acks in time, or the second does, or the message is dead after two leases."""
    report, _ = explored("ack", "fifo")

    assert len(report.outcomes) == 3


@pytest.mark.parametrize(("planted", "happens"), [("any receipt", ""), ("answers early", "writer")])
def test_a_planted_bug_is_caught(planted: str, happens: str) -> None:
    report, _ = explored("ack", "fifo", happens=happens, planted=planted)

    assert report.verdict == "fails"
