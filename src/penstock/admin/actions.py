"""What an operator can do from the page: the buttons of the panels, by one route that a session or the token opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.admin.panel import heads
from penstock.kernel.errors import NotFound
from penstock.kernel.log import Log
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.admin.panel import Panel, RowAction
    from penstock.net.message import Request

_log: Final = Log("node")


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The row, by the value of its first column."""

    row: str


class ActionOut(msgspec.Struct, frozen=True):
    """What it came to, in a sentence, and what there is to look at."""

    said: str
    rows: list[dict[str, Any]] = []
    columns: list[list[str]] = []


class PanelActions:
    """Finds the act behind a button and does it. Who may is judged before, as on every route that is not open."""

    def __init__(self, panels: Iterable[Panel]) -> None:
        """Know the buttons of these panels."""
        self._actions: dict[tuple[str, str], RowAction] = {
            (panel.id, action.id): action for panel in panels for action in panel.actions
        }

    def routes(self) -> list[Route]:
        """List the one route."""
        return [
            Route(
                method="POST",
                path="/panels/{panel}/{action}",
                handler=self._act,
                body=Chosen,
                answer=ActionOut,
                summary="Do what a button of the page does.",
                errors=("not_found", "busy", "conflict"),
            )
        ]

    async def _act(self, request: Request, chosen: Chosen) -> ActionOut:
        panel, name = request.params["panel"], request.params["action"]
        action = self._actions.get((panel, name))
        if action is None:
            raise NotFound("There is no such button.")
        _log.info("operator.acts", panel=panel, action=name, row=chosen.row, corr_id=request.corr_id)
        # Bounded by the request's own deadline.
        outcome = await action.act(chosen.row)
        return ActionOut(outcome.said, list(outcome.rows), [list(head) for head in heads(outcome.columns)])
