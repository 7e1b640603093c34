"""Rows under columns in plain text, for a terminal of any width: nothing is cut, and no word is broken. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import TextWrapper
from typing import Final, NamedTuple

from rich.cells import cell_len

_GAPS: Final = (3, 2, 1)
# So narrow a first column may become; a longer name gets a line of its own.
_FIRST_MIN: Final = 16
_INDENT: Final = "    "


class Grid(NamedTuple):
    """A table as lines: its heading, and those of its rows."""

    heading: str
    lines: list[str]


class _Plan(NamedTuple):
    """How wide each column is, how far they are apart, and how many stand beside each other."""

    widths: list[int]
    gap: int
    beside: int


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Sequence[bool]) -> Grid:
    """Lay rows out. Columns for which there is no room follow their row, indented and by name.

    `right` tells which columns are set to the right.
    """
    plan = _plan([[column, *(row[at] for row in rows)] for at, column in enumerate(columns)], width)
    heading = _line(columns, plan, right)
    return Grid(heading, [line for row in rows for line in _row(columns, row, plan, right, width)])


def _plan(columns: list[list[str]], width: int) -> _Plan:
    widths = [max(map(cell_len, cells)) for cells in columns]
    for gap in _GAPS:
        if sum(widths) + gap * (len(widths) - 1) <= width:
            return _Plan(widths, gap, len(widths))
    room = width - sum(widths[1:]) - (len(widths) - 1)
    if room >= _FIRST_MIN:
        return _Plan([min(room, widths[0]), *widths[1:]], 1, len(widths))
    beside = next((n for n in range(len(widths), 1, -1) if sum(widths[:n]) + 2 * (n - 1) <= width), 1)
    return _Plan(widths, 2, beside)


def _row(columns: Sequence[str], row: Sequence[str], plan: _Plan, right: Sequence[bool], width: int) -> list[str]:
    own = [row[0]] if cell_len(row[0]) > plan.widths[0] else []
    lines = [*own, _line(["", *row[1:]] if own else row, plan, right)]
    rest = [f"{columns[at]} {row[at]}" for at in range(plan.beside, len(row)) if row[at]]
    wrapper = TextWrapper(
        width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return [*lines, *wrapper.wrap("   ".join(rest))]


def _line(cells: Sequence[str], plan: _Plan, right: Sequence[bool]) -> str:
    shown = [_padded(cells[at], plan.widths[at], to_right=right[at]) for at in range(plan.beside)]
    return (" " * plan.gap).join(shown).rstrip()


def _padded(text: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if to_right else text + space
