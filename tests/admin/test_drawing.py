"""One bad panel shows its error, and the others go on."""

from __future__ import annotations

import json

import pytest

from penstock.admin.drawing import Drawing
from penstock.admin.panel import (
    ActionOutcome,
    Column,
    Panel,
    RowAction,
)
from penstock.kernel.metrics import Metrics


class Source:
    """Rows that can be made to fail, or to be nothing JSON knows."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.rows: list[dict[str, object]] = [{"wall": "north"}]

    def __call__(self) -> list[dict[str, object]]:
        if self.error is not None:
            raise self.error
        return self.rows


def drawn(drawing: Drawing) -> list[dict]:
    return [json.loads(bytes(panel)) for panel in drawing.draw()]


@pytest.fixture
def bad() -> Source:
    return Source()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("node")


@pytest.fixture
def drawing(bad: Source, metrics: Metrics) -> Drawing:
    columns = (Column("wall", "wall"),)
    return Drawing(
        [Panel("bad", "Bad", bad, columns=columns), Panel("good", "Good", Source(), columns=columns)], metrics
    )


@pytest.mark.parametrize("error", [KeyError("topic"), RuntimeError("x" * 1000), ZeroDivisionError()])
def test_a_source_that_raises_costs_its_own_panel_alone(bad: Source, drawing: Drawing, error: Exception) -> None:
    bad.error = error
    first, second = drawn(drawing)

    assert (first["id"], first["title"], first["rows"]) == ("bad", "Bad", [])
    assert first["error"].startswith(type(error).__name__)
    assert len(first["error"]) <= 300
    assert (second["rows"], "error" in second) == ([{"wall": "north"}], False)


def test_rows_that_are_no_json_cost_their_own_panel_alone(bad: Source, drawing: Drawing) -> None:
    bad.rows = [{"wall": object()}]
    first, second = drawn(drawing)

    assert ("error" in first, second["rows"]) == (True, [{"wall": "north"}])


def test_a_failure_is_counted_each_time_and_logged_when_it_begins_changes_and_ends(
    bad: Source, drawing: Drawing, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock.node")
    for error in (KeyError("a"), KeyError("b"), ValueError(), None, None):
        bad.error = error
        drawing.draw()

    assert metrics.value("page_panel_failures_total") == 3
    assert [record.message for record in caplog.records] == ["panel.failed", "panel.failed", "panel.recovered"]


def test_a_panel_says_its_buttons() -> None:
    async def act(row: str) -> ActionOutcome:
        return ActionOutcome(row)

    panel = Panel("p", "P", list, columns=(Column("a", "a"),), actions=(RowAction("x", "Do", act, question="Really?"),))

    assert panel.draw()["actions"] == [("x", "Do", "Really?")]
