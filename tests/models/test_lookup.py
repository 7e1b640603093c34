"""A lookup ends, asks nobody twice and settles everybody it heard of; and each step is one of Lookup.tla."""

from __future__ import annotations

from functools import partial

import pytest

from penstock import weave
from tests.models.kit import graph, needs_tlc
from tests.models.lookup_model import NAMES, search

pytestmark = needs_tlc
EVERYBODY = dict.fromkeys(NAMES, NAMES)
CHAIN = {"n1": ("n2",), "n2": ("n3", "n1"), "n3": ("n4",)}
FORK = {"n1": ("n2", "n3"), "n2": ("n4",), "n3": ("n1", "n4")}


def explored(names: dict[str, tuple[str, ...]], *dead: str, forgets: bool = False) -> weave.WeaveReport:
    program = partial(search, names, frozenset(dead), forgets=forgets)
    return weave.explore(program, mode="any", refines=weave.Refinement(graph("Lookup")), seconds=None)


@pytest.mark.parametrize(
    ("names", "dead"),
    [(EVERYBODY, ()), (EVERYBODY, ("n3",)), (CHAIN, ()), (FORK, ()), (FORK, ("n2",)), (FORK, ("n1",))],
)
def test_every_step_of_a_lookup_is_a_step_of_the_specification(
    names: dict[str, tuple[str, ...]], dead: tuple[str, ...]
) -> None:
    report = explored(names, *dead)

    assert (report.verdict, report.complete) == ("holds", True), report


def test_the_specification_rejects_a_lookup_that_forgets_whom_it_asked() -> None:
    report = explored(FORK, forgets=True)

    assert report.verdict == "fails", report
    assert "refinement: no step of the specification leads" in report.message
