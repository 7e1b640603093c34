"""The page fits every window and is used without a mouse: nothing is cut off, the focus is seen and never lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.acceptance.node_process import NodeProcess, free_port
from tests.browser.chromium import PROGRAM, Chromium, Tab
from tests.browser.hands import VIEWS, answer, fail, go, press, row_of, send, signed_in

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)")
LONG = "tenants/a-company-with-a-long-name/regions/eu-central-1/departments/shipping/parcel-handed-over-to-carrier"
WORD = "w" * 64
TRACEBACK = "Traceback (most recent call last):\n" + "  File " + "x" * 300 + "\nValueError: " + "y" * 300
DRAWN_TWICE = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
DIALOG = "document.getElementById('ask')"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Run a node whose names, reasons, addresses and numbers are long."""
    with NodeProcess(data_dir=tmp_path_factory.mktemp("busy")) as node:
        for topic in (LONG, WORD, "short"):
            send(node, topic, key="k" * 100, attrs={"trace": "0123456789abcdef" * 8})
            fail(node, topic, TRACEBACK, times=2)
        for n in range(6):
            send(node, f"more/{n}")
        upstreams = [f"http://{'a-long-host-name.' * 4}example.org:8080", f"http://127.0.0.1:{free_port()}"]
        for prefix, more in (("/a-long-prefix/of-a-service/with-many-parts", {}), ("/shop", {"require": ["op=get"]})):
            asked = {"prefix": prefix, "upstream": upstreams, **more}
            assert node.ask("admin", "POST", "/admin/routes", asked, token=True).status == 200
        caveats = [f"svc-mailbox:topic={WORD}", "svc-mailbox:op=recv,ack,nack", "svc-storage:op=get,put"]
        asked = {"subject_ref": "s" * 60, "audience": ["svc-mailbox", "svc-storage"], "ttl_s": 600, "caveats": caveats}
        assert node.ask("passport", "POST", "/v1/passport/issue", asked, token=True).status == 200
        provided = {"key": "b3:" + "7a" * 32, "addrs": [f"https://{'long-name.' * 5}example.org:443"]}
        assert node.ask("dht_http", "POST", "/v1/dht/provide", provided, token=True).status == 200
        for _ in range(40):
            assert node.ask("mailbox", "POST", "/v1/send", {"topic": LONG, "payload": 1}).status == 401
        yield node


# What can be seen of the view: an element that is wider than what shows it, and that nothing scrolls.
CUT = """(() => {
  const faults = [];
  const scrolls = (node) => /auto|scroll/.test(getComputedStyle(node).overflowX);
  for (const node of document.querySelectorAll('#view *, #verdict *, dialog[open] *')) {
    if (!node.checkVisibility() || node.closest('svg, caption')) continue;
    const style = getComputedStyle(node);
    if (node.scrollWidth > node.clientWidth + 1 && /hidden|clip/.test(style.overflowX) && !node.matches('.glimpse'))
      faults.push(['cut', node.className || node.tagName, node.innerText.slice(0, 60)]);
    // A table goes into blocks before it would have to be scrolled.
    if (node.matches('.scroll') && node.scrollWidth > node.clientWidth + 1)
      faults.push(['scrolled', node.innerText.slice(0, 60), node.scrollWidth, node.clientWidth]);
    const box = node.getBoundingClientRect();
    let around = node.parentElement;
    while (around && !scrolls(around)) around = around.parentElement;
    if (box.width && (box.right > innerWidth + 1 || box.left < -1) && !around)
      faults.push(['outside', node.className || node.tagName, node.innerText.slice(0, 60), box.right]);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push(['page', document.documentElement.scrollWidth]);
  return faults.slice(0, 6);
})()"""


def letters(topic: str) -> str:
    return f"dead?topic={quote(topic, '')}&reason={quote('rejected:ValueError', '')}"


@pytest.mark.parametrize("width", [390, 700, 1024, 1400, 2560])
def test_no_view_is_cut_off_at_any_width(browser: Chromium, busy: NodeProcess, width: int) -> None:
    tab = signed_in(browser, busy, width=width)
    faults = {}
    for view in [*VIEWS, f"topic/{quote(LONG, '')}", f"topic/{WORD}", letters(LONG), letters(WORD)]:
        go(tab, view)
        tab.wait("document.querySelectorAll('#view .card').length > 0")
        if view.startswith(("dead?", "topic/")):
            tab.wait("document.querySelector('details.item') !== null")
        tab.js("document.querySelectorAll('#view details').forEach((each) => { each.open = true; })")
        tab.js(DRAWN_TWICE)
        faults[view] = tab.js(CUT)
    for view, label in (("topics", "Send a message"), ("tokens", "Issue"), ("gateway", "Add a route")):
        go(tab, view)
        press(tab, label)
        tab.wait(f"{DIALOG}.open")
        tab.js("document.querySelectorAll('dialog details').forEach((each) => { each.open = true; })")
        tab.js(DRAWN_TWICE)
        faults[label] = tab.js(CUT)
        tab.press("Escape")

    assert {view: found for view, found in faults.items() if found} == {}


def test_on_a_phone_a_row_names_each_of_its_values_and_can_still_be_sorted(
    browser: Chromium, busy: NodeProcess
) -> None:
    tab = signed_in(browser, busy, width=390)
    go(tab, "gateway")
    row = "[...document.querySelectorAll('tbody tr')].filter((each) => each.innerText.startsWith('/shop'))"
    tab.wait(f"{row}.length === 2")
    tab.wait("document.querySelectorAll('.stacked').length > 2")
    shown = tab.js(f"{row}.at(-1).innerText")
    labels = tab.js(f"[...{row}.at(-1).querySelectorAll('[data-label]')].map((each) => each.dataset.label)")
    go(tab, "topics")
    tab.wait("document.querySelectorAll('td a.name').length === 9")
    press(tab, "topic", "th")
    names = tab.js("[...document.querySelectorAll('td a.name')].map((each) => each.innerText)")

    assert "op=get" in shown
    assert labels == ["upstreams", "a token must cover", "methods", "prefix is", "answers within", "comes from"]
    assert names == [*(f"more/{n}" for n in range(6)), "short", LONG, WORD]


# A table as the page makes them, in the view that is open; its one row grows.
GROWING = """(async () => {
  const { table } = await import(document.querySelector('script[type=module]').src.replace('page.js', 'table.js'));
  const made = table('Growing', [{ key: 'name', title: 'name' }, { key: 'n', title: 'n', kind: 'count' }]);
  document.querySelector('#view > .stack').append(made);
  const seen = [];
  for (const n of [1, 1e290]) {
    made.update([{ name: 'one', n }]);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const box = made.firstChild;
    seen.push(box.classList.contains('stacked'), box.scrollWidth > box.clientWidth);
  }
  return seen;
})()"""


def test_a_table_that_outgrows_its_place_is_stacked_then(browser: Chromium, busy: NodeProcess) -> None:
    tab = signed_in(browser, busy, width=1024)
    go(tab, "storage")
    tab.wait("document.querySelectorAll('#view .card').length > 0")

    assert tab.js(GROWING) == [False, False, True, False]


# --- without a mouse

FOCUS = """(() => { const found = document.activeElement; const style = getComputedStyle(found);
  const marked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return [found.dataset.walked || '', marked, found.outerHTML.slice(0, 90)]; })()"""
MARK = """(() => { let n = 0;
  for (const each of document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex="0"]'))
    if (each.checkVisibility() && !each.disabled && !each.closest('dialog')) each.dataset.walked = String(n += 1);
  document.querySelector('.skip').focus(); return n; })()"""


# How many questions of the page are unanswered, and what the node said last.
WATCH = """(async () => {
  const real = window.fetch;
  window.pending = 0;
  window.fetch = async (...asked) => {
    window.pending += 1;
    try { return await real(...asked); } finally { setTimeout(() => { window.pending -= 1; }, 0); }
  };
  const files = document.querySelector('script[type=module]').src;
  window.state = (await import(files.replace('page.js', 'state.js'))).page;
})()"""


def settled(tab: Tab) -> None:
    """Wait until a view has what it asked for, and two frames have drawn it."""
    frame = tab.js("window.state.frame.number")
    tab.wait(f"window.state.frame.number > {frame} + 1 && window.pending === 0")
    tab.js(DRAWN_TWICE)


def test_every_control_of_every_view_is_reached_by_tab_in_order_and_seen(browser: Chromium, busy: NodeProcess) -> None:
    tab = signed_in(browser, busy, width=1400)
    tab.js(WATCH)
    lost: dict[str, Any] = {}
    for view in [*VIEWS, f"topic/{quote(LONG, '')}", letters(LONG)]:
        if view == "configuration":
            continue  # it is all headings of tables, as elsewhere, and hundreds of rows without controls
        go(tab, view)
        settled(tab)
        if view == "logs":
            press(tab, "Pause")
            tab.js("[...document.querySelectorAll('.log > div')].slice(5).forEach((each) => each.remove())")
        walked = []
        for _ in range(tab.js(MARK) - 1):
            tab.press("Tab")
            number, marked, html = tab.js(FOCUS)
            walked.append(int(number or 0))
            if not marked:
                lost[f"{view}, not seen"] = html
        if walked != list(range(2, len(walked) + 2)):
            lost[view] = walked

    assert lost == {}


def test_esc_closes_a_dialog_and_the_focus_returns_to_its_opener(browser: Chromium, busy: NodeProcess) -> None:
    tab = signed_in(browser, busy)
    seen = {}
    openers = [("topics", "Send a message"), ("tokens", "Issue"), ("tokens", "Explain"), ("tokens", "Revoke")]
    openers += [("gateway", "Add a route"), ("gateway", "Change"), ("gateway", "Remove"), ("dead", "Redrive")]
    for view, label in openers:
        go(tab, view)
        press(tab, label)
        tab.wait(f"{DIALOG}.open && {DIALOG}.contains(document.activeElement)")
        tab.press("Escape")
        tab.wait(f"!{DIALOG}.open")
        seen[label] = tab.js("document.activeElement.textContent")
    go(tab, "overview")
    tab.press("?")
    tab.wait(f"{DIALOG}.open")
    tab.press("Escape")
    tab.wait(f"!{DIALOG}.open")

    assert seen == {label: label for _, label in openers}


def test_a_dialog_is_filled_in_and_sent_by_the_keyboard_alone(browser: Chromium, busy: NodeProcess) -> None:
    tab = signed_in(browser, busy)
    tab.press("g")
    tab.press("k")
    tab.wait("document.getElementById('view').dataset.view === 'tokens'")
    tab.wait("Boolean(document.querySelector('#view .head button'))")
    assert tab.js("document.activeElement.id") == "view"
    tab.press("Tab")
    assert tab.js("document.activeElement.textContent") == "Issue"
    tab.press("Enter")
    tab.wait(f"{DIALOG}.open && document.activeElement.name === 'subject'")
    tab.type("by-hand")
    tab.press("Tab")
    tab.press("Tab")
    assert tab.js("document.activeElement.name") == "topic"
    tab.type("keys/")
    tab.press("Enter")
    tab.wait("document.querySelector('#view pre')?.textContent.startsWith('psp1')")

    assert tab.js("document.activeElement.textContent") == "Issue"
    assert tab.complaints() == []


def test_the_skip_link_leads_to_the_view_and_keeps_the_address(browser: Chromium, busy: NodeProcess) -> None:
    tab = signed_in(browser, busy)
    go(tab, "storage")
    tab.js("document.querySelector('.skip').focus()")
    tab.press("Enter")
    tab.wait("document.activeElement.id === 'view'")

    assert tab.js("location.hash") == "#/storage"


def test_the_focus_stays_in_a_row_that_moves_and_falls_back_to_the_view_when_it_goes(
    browser: Chromium, busy: NodeProcess
) -> None:
    tab = signed_in(browser, busy)
    send(busy, "stays")
    send(busy, "stays")
    send(busy, "moves")
    go(tab, "topics")
    tab.wait(f"Boolean({row_of('moves')})")
    tab.js(f"{row_of('moves')}.querySelector('a').focus()")
    before = tab.js(f"[...document.querySelectorAll('tbody tr')].indexOf({row_of('moves')})")
    for _ in range(4):
        send(busy, "moves")
    tab.wait(f"[...document.querySelectorAll('tbody tr')].indexOf({row_of('moves')}) === 0")
    assert before > 0
    assert tab.js("document.activeElement.innerText") == "moves"

    go(tab, "gateway")
    remove = "document.querySelector('[aria-label=\"Remove /shop\"]')"
    tab.wait(f"Boolean({remove})")
    tab.js(f"{remove}.focus(); {remove}.click()")
    answer(tab, "Remove")
    tab.wait("!document.querySelector('[aria-label=\"Remove /shop\"]')")
    assert tab.js("document.activeElement.id") == "view"
    asked = {"prefix": "/shop", "upstream": ["http://127.0.0.1:9"], "require": ["op=get"]}
    assert busy.ask("admin", "POST", "/admin/routes", asked, token=True).status == 200


def test_nothing_moves_for_whoever_asked_for_less_motion(browser: Chromium, busy: NodeProcess) -> None:
    moving = """[...document.querySelectorAll('*')].filter((each) => {
      const style = getComputedStyle(each);
      return parseFloat(style.transitionDuration) > 0 || parseFloat(style.animationDuration) > 0;
    }).length"""
    tab = signed_in(browser, busy)
    go(tab, "runtime")
    tab.wait("document.querySelector('.bar i') !== null")
    with_motion = tab.js(moving)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    still = {}
    for view in VIEWS:
        go(tab, view)
        tab.wait("document.querySelectorAll('#view .card').length > 0")
        still[view] = tab.js(moving)

    assert with_motion > 0
    assert still == dict.fromkeys(VIEWS, 0)
