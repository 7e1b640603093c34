"""A panel of the operator's page as data: what it is called, where its figures come from, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

# What the page can draw; a new kind of picture is a new word here and a function of that name in page.js.
Render = Literal["services", "meters", "tasks", "table", "events"]
Rows = Sequence[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the row's key, its heading, and whether its values are counts or sizes."""

    key: str
    title: str
    kind: Literal["text", "count", "bytes", "rate", "seconds", "bad"] = "text"


@dataclass(frozen=True, slots=True)
class Panel:
    """One section. `source` is called once a tick, however many look, and never waits; its rows come worst first."""

    id: str
    title: str
    source: Callable[[], Rows]
    _: KW_ONLY
    render: Render = "table"
    columns: tuple[Column, ...] = ()
    # What stands there when there are no rows.
    empty: str = "Nothing here."
    # More rows than these are only counted.
    rows_max: int = 200

    def draw(self) -> dict[str, object]:
        """Return what the page needs to draw it now."""
        rows = self.source()
        shown = rows if len(rows) <= self.rows_max else rows[: self.rows_max]
        drawn: dict[str, object] = {"id": self.id, "title": self.title, "render": self.render, "rows": shown}
        if self.columns:
            drawn["columns"] = [(column.key, column.title, column.kind) for column in self.columns]
        return {**drawn, "empty": self.empty, "more": len(rows) - len(shown)}
