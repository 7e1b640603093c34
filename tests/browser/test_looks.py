"""Everybody can use the page: axe-core finds no fault in any view, light or dark, on a phone or a wide screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.node_process import NodeProcess
from tests.browser.chromium import PROGRAM, Chromium, Tab
from tests.browser.hands import VIEWS, answer, at, go, press, send, signed_in

AXE = Path(__file__).parent / "axe" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)"),
    pytest.mark.skipif(not AXE.exists(), reason="no axe-core here (npm ci --prefix tests/browser/axe)"),
]
_RUN = """axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations.map((each) =>
  [each.id, each.help, each.nodes.slice(0, 3).map((node) => node.html)])))"""


def violations(tab: Tab) -> list[Any]:
    if not tab.js("typeof axe === 'object'"):
        tab.js(AXE.read_text("utf-8") + "; true")
    found: list[Any] = json.loads(tab.js(_RUN))
    return found


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_every_view_can_be_used_by_everybody(browser: Chromium, node: NodeProcess, width: int, dark: bool) -> None:
    send(node, "looked/at")
    send(node, "looked/at", ttl_ms=1)
    tab = signed_in(browser, node, width=width, dark=dark)
    faults = {}
    for view in [*VIEWS, "topic/looked%2Fat", "dead?topic=looked%2Fat&reason=ttl"]:
        go(tab, view)
        tab.wait("document.querySelectorAll('#view .card').length > 0 || location.hash === '#/webhooks'")
        tab.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        tab.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        faults[view] = violations(tab)
    for view, label in (("topics", "Send a message"), ("tokens", "Issue"), ("gateway", "Add a route")):
        go(tab, view)
        press(tab, label)
        tab.wait("document.getElementById('ask').open")
        tab.js("document.querySelectorAll('dialog details').forEach((each) => { each.open = true; })")
        faults[label] = violations(tab)
        tab.press("Escape")
    go(tab, "tokens")
    press(tab, "Explain")
    answer(tab, "Explain", token=node.ready["token"], against="send images/x")
    tab.wait("document.querySelector('.says') !== null && !document.getElementById('ask').open")
    faults["explained"] = violations(tab)

    assert {view: found for view, found in faults.items() if found} == {}


def test_the_api_pages_and_the_sign_in_can_be_used_by_everybody(browser: Chromium, node: NodeProcess) -> None:
    stranger = browser.tab()
    stranger.open(at(node))
    stranger.wait("!document.getElementById('login').hidden")
    faults = {"sign in": violations(stranger)}
    tab = signed_in(browser, node)
    for path in ("/docs", "/docs/svc-passport"):
        tab.open(at(node, path))
        tab.wait("document.querySelector('.docs h1') !== null")
        tab.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        faults[path] = violations(tab)

    assert {place: found for place, found in faults.items() if found} == {}


def test_an_operation_is_tried_from_its_page(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    tab.open(at(node, "/docs/svc-mailbox"))
    # The script of the page comes last; before it a form does nothing.
    tab.wait("document.readyState === 'complete' && document.querySelector('.docs h1') !== null")
    form = "document.querySelector('form[data-path=\"/api/svc-mailbox/v1/send\"]')"
    tab.js(f"{form}.closest('details').open = true")
    tab.js(f"{form}.requestSubmit()")
    tab.wait(f"{form}.innerText.includes('200 in ')")
    stored = json.loads(tab.js(f"{form}.querySelector('pre').textContent"))
    tab.js(f"{form}.querySelector('textarea').value = '{{}}'")
    tab.js(f"{form}.requestSubmit()")
    tab.wait(f"{form}.innerText.includes('400 in ')")

    assert set(stored) == {"msg_id", "duplicate", "shard"}
    assert "malformed" in tab.js(f"{form}.querySelector('pre').textContent")
