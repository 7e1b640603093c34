"""What is filled in on the page: a route is changed field by field, a filter is typed fast, tokens have roles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.node_process import NodeProcess, free_port
from tests.browser.chromium import PROGRAM, Chromium, Tab
from tests.browser.hands import add_route, answer, go, press, signed_in, tick, told

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)")
DIALOG = "document.getElementById('ask')"


# --- routes


def kept(node: NodeProcess, prefix: str) -> dict[str, Any]:
    routes = node.ask("admin", "GET", "/admin/routes", token=True).json()["routes"]
    found: dict[str, Any] = next(each for each in routes if each["prefix"] == prefix)
    return found


def guarded(node: NodeProcess, prefix: str) -> dict[str, Any]:
    """Add a route in which nothing is as it is by default."""
    asked = {
        "prefix": prefix,
        "upstream": [f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"],
        "require": ["op=get", "topic=orders"],
        "methods": ["GET", "OPTIONS"],
        "strip_prefix": False,
        "timeout_ms": 1250,
    }
    added = node.ask("admin", "POST", "/admin/routes", asked, token=True)
    assert added.status == 200, added.body
    shown: dict[str, Any] = added.json()["route"]
    assert {name: shown[name] for name in asked} == asked
    return shown


def change(tab: Tab, prefix: str) -> None:
    found = f"document.querySelector('[aria-label=\"Change {prefix}\"]')"
    tab.wait(f"Boolean({found})")
    tab.js(f"{found}.focus(); {found}.click()")
    tab.wait(f"{DIALOG}.open")


def remove(node: NodeProcess, prefix: str) -> None:
    assert node.ask("admin", "DELETE", f"/admin/routes?prefix={prefix}", token=True).status == 200


def test_a_change_of_one_field_leaves_the_rest_of_a_route_as_it_was(browser: Chromium, node: NodeProcess) -> None:
    before = guarded(node, "/whole")
    tab = signed_in(browser, node)
    go(tab, "gateway")
    change(tab, "/whole")
    answer(tab, "Change", timeout="2.5")
    told(tab, "/whole is live.")
    after = kept(node, "/whole")
    change(tab, "/whole")
    answer(tab, "Change", require="op=get")
    tab.wait(f"!{DIALOG}.open")
    narrowed = kept(node, "/whole")
    remove(node, "/whole")

    assert after == {**before, "timeout_ms": 2500}
    assert narrowed == {**after, "require": ["op=get"]}


def test_a_change_begins_with_what_the_route_is_now_not_when_the_table_was_drawn(
    browser: Chromium, node: NodeProcess
) -> None:
    guarded(node, "/meanwhile")
    tab = signed_in(browser, node)
    go(tab, "gateway")
    tab.wait("Boolean(document.querySelector('[aria-label=\"Change /meanwhile\"]'))")
    asked = {"prefix": "/meanwhile", "upstream": ["http://127.0.0.1:9"], "require": ["op=put"]}
    node.ask("admin", "POST", "/admin/routes", asked, token=True)
    change(tab, "/meanwhile")
    answer(tab, "Change", timeout="3")
    told(tab, "/meanwhile is live.")
    after = kept(node, "/meanwhile")
    remove(node, "/meanwhile")

    assert (after["require"], after["upstream"], after["timeout_ms"]) == (["op=put"], ["http://127.0.0.1:9"], 3000)


def test_a_route_is_opened_to_anyone_only_after_that_was_said_in_words(browser: Chromium, node: NodeProcess) -> None:
    before = guarded(node, "/opened")
    tab = signed_in(browser, node)
    go(tab, "gateway")
    change(tab, "/opened")
    assert "Anyone who reaches the gateway" not in tab.js(f"{DIALOG}.innerText")
    answer(tab, "Change", require="")
    assert tab.js(f"{DIALOG}.open")
    assert "Anyone who reaches the gateway may use this route" in tab.js(f"{DIALOG}.innerText")
    assert kept(node, "/opened") == before
    # A page without the browser's own check of fields asks too.
    tab.js("document.querySelector('#ask form').noValidate = true")
    press(tab, "Change", "#ask")
    tab.wait(f"{DIALOG}.innerText.includes('Name what a token must cover, or tick')")
    assert kept(node, "/opened") == before

    tick(tab, "open")
    press(tab, "Change", "#ask")
    told(tab, "/opened is live.")
    assert kept(node, "/opened")["require"] == []
    # What is open already is not asked about again.
    change(tab, "/opened")
    answer(tab, "Change", timeout="9")
    tab.wait(f"!{DIALOG}.open")
    assert kept(node, "/opened")["timeout_ms"] == 9000
    remove(node, "/opened")


def test_a_refused_route_stays_in_its_dialog_with_the_reason(browser: Chromium, node: NodeProcess) -> None:
    before = guarded(node, "/taken")
    tab = signed_in(browser, node)
    go(tab, "gateway")
    press(tab, "Add a route")
    answer(tab, "Add the route", prefix="taken/", upstream="http://127.0.0.1:9", require="op=get")
    tab.wait(f"{DIALOG}.innerText.includes('There is a route /taken already')")
    assert kept(node, "/taken") == before
    answer(tab, "Add the route", prefix="/other", require="nonsense")
    tab.wait(f"{DIALOG}.innerText.includes('is nothing a capability can be asked for')")
    values = "['prefix', 'upstream', 'require'].map((name) => document.querySelector(`#ask [name=${name}]`).value)"
    assert tab.js(values) == ["/other", "http://127.0.0.1:9", "nonsense"]
    press(tab, "Cancel", "#ask")
    add_route(tab, "/fresh", f"http://127.0.0.1:{free_port()}", "op=get")
    fresh = kept(node, "/fresh")
    remove(node, "/fresh")
    remove(node, "/taken")

    assert (fresh["methods"], fresh["timeout_ms"], fresh["strip_prefix"]) == (
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        5000,
        True,
    )


# --- the filter of the log

# The first question about the log is answered last.
HOLD_THE_FIRST = """window.asked = []; const real = window.fetch;
window.fetch = async (path, options) => {
  const answer = await real(path, options);
  if (String(path).startsWith('/logs')) {
    window.asked.push(String(path));
    if (window.asked.length === 1) await new Promise((done) => { window.go_on = done; });
  }
  return answer;
}; true"""
LINES = "document.querySelectorAll('.log > div').length"


def test_the_last_typed_filter_of_the_log_wins_over_answers_that_come_late(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    ids = [node.ask("mailbox", "POST", "/v1/send", {"wrong": n}, token=True).json()["corr_id"] for n in range(3)]
    tab.js(HOLD_THE_FIRST)
    go(tab, "logs")
    tab.wait("Boolean(window.go_on)")
    tab.press("/")
    for letter in ids[1]:
        tab.type(letter)
    tab.wait(f"{LINES} === 1 && document.querySelector('.log').innerText.includes('{ids[1]}')")
    tab.js("window.go_on(); new Promise((done) => setTimeout(done, 0))")
    typed = tab.js("window.asked.filter((each) => !each.endsWith('text=')).length")

    assert tab.js("document.getElementById('filter').value") == ids[1]
    assert tab.js(LINES) == 1
    assert typed < len(ids[1])  # not one question for each letter
    tab.js("document.getElementById('filter').select()")
    tab.type(ids[2])
    tab.wait(f"{LINES} === 1 && document.querySelector('.log').innerText.includes('{ids[2]}')")
    assert tab.complaints() == []
