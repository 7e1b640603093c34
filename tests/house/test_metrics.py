"""A metric that is documented is counted: a number that never moves is worse than none."""

from __future__ import annotations

import pytest

from penstock.kernel.errors import taxonomy
from tests.house.metric_moves import read_moves
from tests.house.tree import Tree, repository


def test_every_declared_metric_is_moved_somewhere() -> None:
    moves = read_moves(repository())

    assert len(moves.kept) > 80, "tests/house/metric_moves.py no longer finds them"
    assert moves.still() == []


def test_the_metric_of_every_error_is_one_that_is_counted() -> None:
    moves = read_moves(repository())
    named = {error.metric for error in taxonomy()}

    assert sorted(named - set(moves.kept)) == []


@pytest.mark.parametrize(
    "line",
    [
        'self._lost = metrics.counter("lost_total", "Lost.")',
        'metrics.counter("lost_total", "Lost.")',
        'metrics.declare("counter", "lost_total", "Lost.", "queue")',
        'self._lost: Histogram = metrics.histogram("lost_total", "Lost.")',
        'self._lost = {op: metrics.counter("lost_total", "Lost.", op=op) for op in ops}',
    ],
)
def test_a_metric_that_nothing_moves_is_found(line: str) -> None:
    assert read_moves(Tree({"src/x.py": line})).still() == ["lost_total"]


@pytest.mark.parametrize(
    "line",
    [
        'self._lost = metrics.counter("lost_total")\nself._lost.value += 1',
        'self._lost = {op: metrics.counter("lost_total", op=op) for op in ops}\nthis._lost[op].value += n',
        'metrics.counter("lost_total", "Lost.").value += 1',
        'metrics.watched("lost_total").append(lambda: queue.lost)',
        'metrics.gauge("lost_total", "Lost.", read=lambda: queue.lost)',
        'lost = metrics.histogram("lost_total")\nlost.observe(1.0)',
        'metrics.declare("counter", "lost_total", "Lost.")\nmetrics.counter("lost_total").inc()',
    ],
)
def test_a_metric_that_some_line_moves_is_none(line: str) -> None:
    assert read_moves(Tree({"src/x.py": line})).still() == []
