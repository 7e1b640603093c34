"""A bucket's one writer: bounded, nobody twice, queued is worked off; and each step is one of Bucket.tla."""

from __future__ import annotations

from functools import partial

from penstock import weave
from tests.models.bucket_model import IGNORES, bucket
from tests.models.kit import graph, needs_tlc

pytestmark = needs_tlc


def explored(hasty: int = 0) -> weave.WeaveReport:
    refinement = weave.Refinement(graph("Bucket"))
    return weave.explore(partial(bucket, hasty=hasty), mode="any", ignores=IGNORES, refines=refinement, seconds=None)


def test_every_step_of_the_writer_is_a_step_of_the_specification_and_a_drain_works_all_off() -> None:
    report = explored()

    assert (report.verdict, report.complete) == ("holds", True), report


def test_the_specification_rejects_two_writers_that_look_before_they_act() -> None:
    report = explored(hasty=2)

    assert report.verdict == "fails", report
    assert "refinement: no step of the specification leads" in report.message
