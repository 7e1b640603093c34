"""What a person does with the page: signs in, opens views, presses buttons, fills in dialogs."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tests.acceptance.node_process import NodeProcess
from tests.browser.chromium import Chromium, Tab

WEBHOOK_SECRET = "not-a-real-secret-of-a-webhook"
DRAWN = "document.querySelector('#view .card') !== null"
STATE = "document.getElementById('state').innerText"
LINK = "document.getElementById('link').innerText"
VIEWS = [
    "overview", "topics", "dead", "gateway", "webhooks", "discovery", "tokens", "storage", "runtime", "configuration",
    "logs",
]  # fmt: skip
WIDER = "document.documentElement.scrollWidth - innerWidth"


def at(node: NodeProcess, path: str = "/") -> str:
    return f"http://127.0.0.1:{node.port('admin')}{path}"


def signed_in(browser: Chromium, node: NodeProcess, **look: bool | int) -> Tab:
    """Come in by the form, as an operator who has the token."""
    tab = browser.tab(**look)  # type: ignore[arg-type]
    tab.open(at(node))
    tab.wait("!document.getElementById('login').hidden && document.activeElement.id === 'token'")
    tab.type(node.ready["token"])
    tab.press("Enter")
    tab.wait(DRAWN)
    tab.events.clear()
    return tab


def go(tab: Tab, view: str) -> None:
    """Open a view, as its link does."""
    tab.js(f"location.hash = '#/{view}'")
    name = view.partition("/")[0].partition("?")[0]
    tab.wait(f"document.getElementById('view').dataset.view === '{name}'")


def later_frames(tab: Tab, count: int) -> None:
    """Wait until so many frames of the stream have come after this moment."""
    state = "document.querySelector('link[href*=\"state.js\"]').href"
    tab.js(f"import({state}).then((m) => {{ window.state = m.page; window.since = m.page.frame.number; }})")
    tab.wait(f"window.state.frame.number >= window.since + {count}")


def send(node: NodeProcess, topic: str, payload: str = "aGk=", **more: Any) -> str:
    answer = node.ask("mailbox", "POST", "/v1/send", {"topic": topic, "payload_b64": payload, **more}, token=True)
    assert answer.status == 200, answer.body
    return str(answer.json()["msg_id"])


def fail(node: NodeProcess, topic: str, traceback: str, times: int = 1, message: str = "bad postcode") -> None:
    """Make dead letters as a handler does that raises ValueError."""
    node.ask("mailbox", "PUT", f"/v1/topics/{quote(topic, '')}/settings", {"max_attempts": 1}, token=True)
    for _ in range(times):
        send(node, topic)
    left, error = times, {"class": "ValueError", "message": message, "traceback": traceback}
    while left:
        asked = {"topic": topic, "max_messages": left}
        for each in node.ask("mailbox", "POST", "/v1/recv", asked, token=True).json()["messages"]:
            given = {"msg_id": each["msg_id"], "receipt": each["receipt"], "reason": "ValueError", "error": error}
            assert node.ask("mailbox", "POST", "/v1/nack", given, token=True).status == 200
            left -= 1


def row_of(topic: str) -> str:
    return f"[...document.querySelectorAll('tbody tr')].find((each) => each.firstChild.innerText === '{topic}')"


def cell(topic: str, place: int) -> str:
    return f"{row_of(topic)}?.children[{place}].innerText"


def press(tab: Tab, label: str, within: str = "#view") -> None:
    """Press a button as a hand does: it has the focus."""
    found = f"[...document.querySelectorAll('{within} button')].find((each) => each.textContent === '{label}')"
    tab.wait(f"Boolean({found})")
    tab.js(f"(() => {{ const found = {found}; found.focus(); found.click(); }})()")


def put(tab: Tab, place: str, value: str) -> None:
    """Put a value into a field, as typing does: the page hears of it."""
    tab.js(
        f"(() => {{ const found = document.querySelector('{place}'); found.value = {json.dumps(value)};"
        " found.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def answer(tab: Tab, label: str, **fields: str) -> None:
    """Fill in the dialog and press its button."""
    tab.wait("document.getElementById('ask').open")
    for name, value in fields.items():
        put(tab, f'#ask [name="{name}"]', value)
    press(tab, label, "#ask")


def tick(tab: Tab, name: str, on: bool = True) -> None:
    """Tick a box of the dialog, or clear it."""
    tab.js(f"document.querySelector('#ask [name={name}]').checked = {json.dumps(on)}")


def add_route(tab: Tab, prefix: str, upstream: str, require: str = "", *, keep: bool = False) -> None:
    """Add a route by its dialog; without anything that a token must cover it is open, and that is said."""
    press(tab, "Add a route")
    tab.wait("document.getElementById('ask').open")
    tick(tab, "open", not require)
    tick(tab, "keep", keep)
    answer(tab, "Add the route", prefix=prefix, upstream=upstream, require=require)
    told(tab, f"{prefix} is live.")


def told(tab: Tab, text: str) -> None:
    tab.wait(f"document.getElementById('toast').innerText.includes({json.dumps(text)})")
