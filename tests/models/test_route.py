"""No missed shutdown and no reordering on the way work, worker, route, bucket writer: in every schedule."""

from __future__ import annotations

from functools import partial
from typing import Literal

import pytest

from penstock import weave
from tests.models.route_model import IGNORES, route


def explored(mode: Literal["fifo", "any"], *, workers: int = 1, planted: str = "") -> weave.WeaveReport:
    program = partial(route, workers=workers, planted=planted)
    return weave.explore(program, mode=mode, ignores=IGNORES, seconds=None, strategy="hash")


@pytest.mark.parametrize(("mode", "workers"), [("fifo", 2), ("any", 1)])
def test_every_accepted_job_reaches_the_writer_whole_and_in_order_and_the_drain_ends(
    mode: Literal["fifo", "any"], workers: int
) -> None:
    report = explored(mode, workers=workers)

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize("planted", ["overtakes", "writer_first"])
def test_a_command_that_overtakes_and_a_writer_that_ends_first_are_found(planted: str) -> None:
    assert explored("fifo", planted=planted).verdict == "fails"
