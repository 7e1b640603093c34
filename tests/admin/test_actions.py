"""The buttons of the page: done for the operator alone, from his own page, and what they came to is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.admin.actions import PanelActions
from penstock.admin.authority import OperatorOnly
from penstock.admin.panel import (
    ActionOutcome,
    Column,
    Panel,
    RowAction,
)
from penstock.kernel.errors import Conflict
from tests.net.server.listener_kit import (
    Answer,
    Site,
    get,
    post,
    serving,
)

TOKEN = "psp1_not-a-real-token-just-forty-characters-long"
BEARER = f"Authorization: Bearer {TOKEN}"


class Buttons:
    """A panel with two buttons, and what they were pressed for."""

    def __init__(self) -> None:
        self.pressed: list[tuple[str, str]] = []

    async def paint(self, row: str) -> ActionOutcome:
        self.pressed.append(("paint", row))
        return ActionOutcome(
            f"{row} is red now.",
            [{"wall": row, "coats": 2}],
            (Column("wall", "wall"), Column("coats", "coats", "count")),
        )

    async def burn(self, row: str) -> ActionOutcome:
        raise Conflict(f"{row} is not yours.")

    def panel(self) -> Panel:
        acts = (RowAction("paint", "Paint", self.paint, question="Really?"), RowAction("burn", "Burn", self.burn))
        return Panel("walls", "Walls", list, columns=(Column("wall", "wall"),), actions=acts)


@asynccontextmanager
async def admin() -> AsyncIterator[tuple[Site, Buttons, OperatorOnly]]:
    buttons = Buttons()
    authority = OperatorOnly(lambda: TOKEN, open_metrics=lambda: False, now=asyncio.get_running_loop().time)
    async with serving(PanelActions([buttons.panel()]).routes(), admission=authority) as site:
        yield site, buttons, authority


async def ask(site: Site, request: bytes) -> Answer:
    client = site.connect()
    client.send(request)
    return await client.answer()


def press(panel: str, action: str, *fields: str, row: str = "north") -> bytes:
    return post(f"/panels/{panel}/{action}", json.dumps({"row": row}).encode(), *fields)


async def test_a_button_does_its_act_and_tells_what_it_came_to() -> None:
    async with admin() as (site, buttons, _):
        answer = await ask(site, press("walls", "paint", BEARER))

    assert (answer.status, buttons.pressed) == (200, [("paint", "north")])
    assert json.loads(answer.body) == {
        "said": "north is red now.",
        "rows": [{"wall": "north", "coats": 2}],
        "columns": [["wall", "wall", "text"], ["coats", "coats", "count"]],
    }


async def test_a_refusal_is_the_refusal_it_was() -> None:
    async with admin() as (site, _, _):
        answer = await ask(site, press("walls", "burn", BEARER))

    assert (answer.status, json.loads(answer.body)["detail"]) == (409, "north is not yours.")


@pytest.mark.parametrize(("panel", "action"), [("walls", "eat"), ("nothing", "paint")])
async def test_there_are_no_other_buttons(panel: str, action: str) -> None:
    async with admin() as (site, buttons, _):
        answer = await ask(site, press(panel, action, BEARER))

    assert (answer.status, buttons.pressed) == (404, [])


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("Authorization: Bearer psp1_another",),
        ("SESSION", "Origin: http://evil.example"),
        ("SESSION", "Origin: null"),
        ("SESSION", "Sec-Fetch-Site: cross-site"),
        ("SESSION", "Sec-Fetch-Site: same-site"),
        ("SESSION", "Origin: http://localhost:9"),
    ],
)
async def test_nobody_else_and_no_other_page_presses_a_button(fields: tuple[str, ...]) -> None:
    async with admin() as (site, buttons, authority):
        session = f"Cookie: penstock_session={authority.sign_in(token=TOKEN)}"
        answer = await ask(
            site, press("walls", "paint", *(session if field == "SESSION" else field for field in fields))
        )

    assert (answer.status >= 400, buttons.pressed) == (True, [])


async def test_a_session_of_the_own_page_presses_it_and_a_get_never_does() -> None:
    async with admin() as (site, buttons, authority):
        session = f"Cookie: penstock_session={authority.sign_in(token=TOKEN)}"
        by_link = await ask(site, get("/panels/walls/paint", session))
        pressed_by_link = list(buttons.pressed)
        answer = await ask(site, press("walls", "paint", session, "Sec-Fetch-Site: same-origin"))

    assert (by_link.status, pressed_by_link) == (405, [])
    assert (answer.status, buttons.pressed) == (200, [("paint", "north")])
