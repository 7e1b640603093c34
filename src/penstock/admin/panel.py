"""A panel of the operator's page as data: its name, the source of its rows, how they are drawn, and its actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal

# What the page can draw; a new kind of picture is a new word here and a function of that name in panels.js.
Render = Literal["services", "meters", "tasks", "table", "events"]
# Where on the page it stands; a word for each view that takes panels.
View = Literal["gateway", "webhooks", "discovery", "tokens", "storage", "runtime"]
Rows = Sequence[dict[str, object]]
_WHY_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the row's key, its heading, and what its values are.

    A `topic`, a `message` (of the row's `topic`) and a `corr_id` are links to where the page shows more of them.
    """

    key: str
    title: str
    kind: Literal[
        "text", "count", "bytes", "rate", "seconds", "percent", "time", "bad", "topic", "message", "corr_id"
    ] = "text"


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The result of an action: a sentence, and perhaps rows to show."""

    said: str
    rows: Rows = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class RowAction:
    """A button in a row. `act` gets the value of the row's first column; the page first asks `question`, if any."""

    id: str
    label: str
    act: Callable[[str], Awaitable[ActionOutcome]]
    question: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One section. `source` is called once a tick for all viewers and must not wait. The worst rows come first."""

    id: str
    title: str
    source: Callable[[], Rows]
    _: KW_ONLY
    view: View = "runtime"
    render: Render = "table"
    columns: tuple[Column, ...] = ()
    # What can be done with a row; one whose `actions` is a list of ids offers only those.
    actions: tuple[RowAction, ...] = ()
    # What is said beside the title: which rows these are, and where the others are.
    note: Callable[[], str] | None = None
    # What stands there when there are no rows.
    empty: str = "Nothing here."
    # More rows than these are only counted.
    rows_max: int = 200

    def draw(self) -> dict[str, object]:
        """Return what the page needs to draw it now."""
        rows = self.source()
        shown = rows if len(rows) <= self.rows_max else rows[: self.rows_max]
        drawn: dict[str, object] = {**self._named(), "rows": shown}
        if self.columns:
            drawn["columns"] = heads(self.columns)
        if self.actions:
            drawn["actions"] = [(action.id, action.label, action.question) for action in self.actions]
        if self.note is not None:
            drawn["note"] = self.note()
        return {**drawn, "empty": self.empty, "more": len(rows) - len(shown)}

    def failed(self, error: Exception) -> dict[str, object]:
        """Return what the page draws in its place when the source, or the drawing, failed."""
        why = f"{type(error).__name__}: {error}"[:_WHY_CHARS_MAX]
        return {**self._named(), "rows": (), "error": why}

    def _named(self) -> dict[str, object]:
        return {"id": self.id, "title": self.title, "view": self.view, "render": self.render}


def heads(columns: Sequence[Column]) -> list[tuple[str, str, str]]:
    """Return columns as the page reads them."""
    return [(column.key, column.title, column.kind) for column in columns]
