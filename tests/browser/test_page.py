"""The operator's page in a real browser against a real node: what is seen, by whom, and what happens when it breaks."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.node_process import NodeProcess, free_port
from tests.browser.chromium import PROGRAM, Chromium
from tests.browser.hands import (
    DRAWN,
    LINK,
    STATE,
    VIEWS,
    WIDER,
    add_route,
    answer,
    at,
    cell,
    fail,
    go,
    press,
    row_of,
    send,
    signed_in,
    told,
)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)")
PANELS = ["services", "channels", "tasks", "phases", "events"]
FIRST_LOOK_BYTES = 60_000
# A topic without settings of its own is told by 404, which browsers write into their console.
STATIC = Path(__file__).parents[2] / "src" / "penstock" / "admin" / "static"


def test_the_one_time_link_shows_the_node_and_leaves_nothing_behind(browser: Chromium, tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        tab, link = browser.tab(), node.page_link()
        tab.open(link)
        tab.wait(DRAWN)

        assert tab.js(STATE) == "Working, nothing to do"
        go(tab, "runtime")
        tab.wait("document.querySelectorAll('.panel').length >= 5")
        assert tab.js("[...document.querySelectorAll('.panel')].map((each) => each.id)") == PANELS
        rows = tab.js("[...document.querySelectorAll('#services tbody tr')].map((each) => each.firstChild.innerText)")
        status = node.ask("admin", "GET", "/status", token=True).json()
        assert sorted(rows) == sorted(each["service"] for each in status["services"])
        assert tab.js("location.href.split('#')[0]") == at(node)
        assert tab.js("document.cookie") == ""
        assert tab.complaints() == []
        assert [url for url in tab.requested() if not url.startswith(at(node)[:-1])] == []

        second = browser.tab()
        second.open(link)
        second.wait_text("This link was used before, or is too old.")
        assert second.js("document.getElementById('view').hidden")


def test_opening_the_page_loads_little_and_a_view_loads_its_files_once(browser: Chromium, node: NodeProcess) -> None:
    tab = browser.tab()
    tab.open(node.page_link())
    tab.wait(DRAWN)
    tab.wait("document.querySelector('.chart path')?.getAttribute('d')")  # the last to come is the hour before
    # The stream and the history are figures; they grow with the node, and the page does not keep them.
    first = {url: size for url, size in tab.loaded().items() if not re.search("/(events/stream|history)", url)}
    for view in [*VIEWS, *VIEWS, "topic/orders"]:
        go(tab, view)
    scripts = [url.rpartition("/")[2] for url in tab.requested() if url.endswith(".js")]

    assert sum(first.values()) < FIRST_LOOK_BYTES
    assert min(size for url, size in first.items() if "/assets/" in url) > 0, first
    assert [each for each in scripts if scripts.count(each) > 1] == []
    assert len(scripts) > len([url for url in first if url.endswith(".js")])
    assert tab.complaints() == []


def test_a_view_that_cannot_be_loaded_says_so_and_the_next_one_opens(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    tab.call("Network.setBlockedURLs", urls=["*/tokens.js"])
    go(tab, "tokens")
    tab.wait_text("This view could not be loaded")
    assert tab.js("document.querySelector('#view button').innerText") == "Load the page again"
    go(tab, "storage")
    tab.wait_text("Store a file")
    tab.call("Network.setBlockedURLs", urls=[])
    go(tab, "tokens")

    tab.wait("[...document.querySelectorAll('#view button')].some((each) => each.innerText === 'Issue')")


def test_real_traffic_changes_the_figures(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    for _ in range(3):
        send(node, "figures")
    go(tab, "topics")
    tab.wait(f"{cell('figures', 1)} === '3'")
    node.ask("mailbox", "POST", "/v1/recv", {"topic": "figures"}, token=True)
    tab.wait(f"{cell('figures', 5)} === '1'")

    assert tab.js(cell("figures", 1)) == "2"
    tab.wait(f"{row_of('figures')}.querySelector('path.area').getAttribute('d').length > 10")
    tab.js("document.getElementById('filter').value = 'nothing'")
    tab.js("document.getElementById('filter').dispatchEvent(new Event('input'))")
    tab.wait(f"!{row_of('figures')}")
    assert tab.complaints() == []


def test_refusals_are_counted_by_reason_and_make_the_verdict_amber(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    for _ in range(30):
        assert node.ask("mailbox", "POST", "/v1/send", {"nonsense": 1}, token=True).status == 400
    tab.wait("document.getElementById('verdict').dataset.level !== 'good'")
    tab.wait("document.getElementById('why').innerText.includes('most as malformed')")
    tab.wait("[...document.querySelectorAll('.bars code')].some((each) => each.innerText === 'malformed')")


def test_a_reason_of_refusals_has_its_colour_whichever_others_there_are(browser: Chromium, tmp_path: Path) -> None:
    colour = """[...document.querySelectorAll('.bars code')].find((each) => each.innerText === '%s')
      ?.nextElementSibling.className"""
    with NodeProcess(data_dir=tmp_path) as node:
        tab = signed_in(browser, node)
        for _ in range(3):
            node.ask("mailbox", "POST", "/v1/send", {"topic": "nobody", "payload": ""})
        tab.wait(colour % "unauthenticated")
        alone = tab.js(colour % "unauthenticated")
        for _ in range(3):
            node.ask("mailbox", "POST", "/v1/send", {"nonsense": 1}, token=True)
            node.ask("mailbox", "GET", "/v1/topics/none/settings", token=True)
        tab.wait(colour % "malformed")
        tab.wait(colour % "not_found")
        fresh = signed_in(browser, node)
        for name in ("unauthenticated", "malformed", "not_found"):
            fresh.wait(colour % name)
        among = [fresh.js(colour % name) for name in ("unauthenticated", "malformed", "not_found")]

    assert among[0] == alone
    assert len(set(among)) == 3


def test_the_sparkline_of_a_young_topic_does_not_lie_over_its_number(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    over = tab.js("""(async () => {
      const load = (name) => import(document.querySelector(`link[href*="${name}.js"]`).href);
      const { rate } = await load('chart');
      (await load('state')).page.lines = { young: [null, null, null, null, 5] };
      const cell = document.createElement('div');
      document.getElementById('view').append(cell);
      rate(cell, 'young', 'blue', '5/s');
      const [svg] = cell.children;
      return [...svg.children].map((path) => path.getBoundingClientRect().right - svg.getBoundingClientRect().right);
    })()""")

    assert len(over) == 2
    assert max(over) <= 2


def refusals(node: NodeProcess) -> float:
    """Add up what was refused so far, of all services and for all reasons."""
    lines = node.ask("admin", "GET", "/metrics", token=True).body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(r"\w*rejected_total\{", line))


def test_opening_the_page_without_a_session_asks_to_sign_in_and_is_not_refused(
    browser: Chromium, node: NodeProcess
) -> None:
    before = refusals(node)
    tab = browser.tab()
    tab.open(at(node))
    tab.wait("!document.getElementById('login').hidden && document.activeElement.id === 'token'")

    assert refusals(node) == before
    assert tab.complaints() == []


def test_looking_at_every_view_and_for_a_message_that_is_gone_is_never_refused(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    here, gone = send(node, "plain/one"), "01a1e558-52fd-7000-8000-00367a855112"
    before = refusals(node)
    for view in [*VIEWS, "topic/plain%2Fone", "topic/never-used", f"topic/plain%2Fone?find={gone}"]:
        go(tab, view)
    tab.wait_text("No message here has this msg_id")
    tab.wait_text("It has no settings of its own")
    go(tab, f"topic/plain%2Fone?find={here}")
    tab.wait("document.querySelector('.life')?.innerText.includes('sent to plain/one')")

    assert refusals(node) == before
    assert tab.complaints() == []


def test_a_message_is_sent_peeked_at_followed_and_purged(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "topic/handmade")
    press(tab, "Send a message")
    answer(tab, "Send", topic="handmade", payload='{"to": "Ada"}')
    told(tab, "Stored as ")
    binary = send(node, "handmade", "AAECA/8=")
    press(tab, "Look again")
    tab.wait("document.querySelectorAll('details.item').length === 2")
    shown = tab.js("[...document.querySelectorAll('details.item pre')].map((each) => each.textContent)")

    assert shown[0] == '{\n  "to": "Ada"\n}'
    assert shown[1].startswith("000000  00 01 02 03 ff")

    tab.js(f"document.querySelector('form input[type=search]').value = '{binary}'")
    press(tab, "Find")
    tab.wait("document.querySelector('.life')?.innerText.includes('sent to handmade')")

    leased = node.ask("mailbox", "POST", "/v1/recv", {"topic": "handmade", "visibility_ms": 60_000}, token=True)
    press(tab, "Show the leases")
    tab.wait(f"document.body.innerText.includes('{leased.json()['messages'][0]['msg_id']}')")

    press(tab, "Purge")
    answer(tab, "Purge", name="handmad")
    assert tab.js("document.getElementById('ask').open")  # the wrong name does nothing
    answer(tab, "Purge", name="handmade")
    told(tab, "2 messages removed.")
    assert tab.complaints() == []


def test_a_topic_is_paused_resumed_and_given_settings(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    send(node, "held")
    go(tab, "topic/held")
    press(tab, "Pause")
    told(tab, "Nothing is delivered until it is resumed")
    recv = {"topic": "held"}
    assert node.ask("mailbox", "POST", "/v1/recv", recv, token=True).json()["messages"] == []
    press(tab, "Resume")
    told(tab, "Messages are delivered again.")
    assert len(node.ask("mailbox", "POST", "/v1/recv", recv, token=True).json()["messages"]) == 1

    press(tab, "Settings")
    answer(tab, "Save", max_attempts="3")
    told(tab, "Saved")
    tab.wait("document.getElementById('view').innerText.includes('max_attempts')")
    kept = node.ask("mailbox", "GET", "/v1/topics/held/settings", token=True).json()["settings"]
    press(tab, "Settings")
    answer(tab, "Save", max_attempts="many")
    tab.wait("document.querySelector('#ask [role=alert]').innerText.includes('max_attempts')")

    assert kept["max_attempts"] == 3
    assert node.ask("mailbox", "GET", "/v1/topics/held/settings", token=True).json()["settings"] == kept


def test_every_setting_of_a_topic_has_a_field_and_what_is_left_empty_stays_default(
    browser: Chromium, node: NodeProcess
) -> None:
    chosen = {
        "max_attempts": 3, "visibility_ms": 60_000, "delay_ms": 250, "retention_s": 3600, "on_expiry": "drop",
        "dead_letter_to": "1234", "key_batch": 4, "receipts": "any", "fair_by": "group", "max_payload": 2048,
    }  # fmt: skip
    dedup = {"window_s": 900, "entries": 50, "mode": "first_wins", "on_full": "oldest_out"}
    fields = {name: str(value) for name, value in chosen.items()}
    fields |= {f"dedup.{name}": str(value) for name, value in dedup.items()}
    tab = signed_in(browser, node)
    go(tab, "topic/set%2Ffully")
    press(tab, "Settings")
    tab.wait("document.querySelector('#ask [name=max_attempts]')?.placeholder === '5'")
    empty = "[...document.querySelectorAll('#ask option[value=\"\"]')].map((each) => each.innerText)"
    assert "default: is refused" in tab.js(empty)
    assert "default: " not in [each.rstrip() + " " for each in tab.js(empty)]
    answer(tab, "Save", **fields, tags="team=mail\nnote=a=b")
    told(tab, "Saved")

    def kept() -> dict[str, Any]:
        shown: dict[str, Any] = node.ask("mailbox", "GET", "/v1/topics/set%2Ffully/settings", token=True).json()
        settings: dict[str, Any] = shown["settings"]
        return settings

    assert kept() == {**chosen, "dedup": dedup, "tags": {"team": "mail", "note": "a=b"}}
    press(tab, "Settings")
    answer(tab, "Save", tags="")
    told(tab, "Saved")
    tab.wait("!document.getElementById('view').innerText.includes('team')")
    assert kept() == {**chosen, "dedup": dedup}
    press(tab, "Settings")
    answer(tab, "Save", **dict.fromkeys(fields, ""))
    tab.wait("document.getElementById('view').innerText.includes('It has no settings of its own')")
    assert kept() == {}
    press(tab, "Settings")
    answer(tab, "Save", **{"dedup.mode": "first_wins", "tags": "no pair"})
    tab.wait("document.querySelector('#ask [role=alert]').innerText.includes('name=value')")
    answer(tab, "Save", tags="")
    tab.wait("document.getElementById('view').innerText.includes('first_wins')")
    assert kept()["dedup"]["mode"] == "first_wins"
    assert tab.complaints() == []


def letters(node: NodeProcess, topic: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = node.ask("mailbox", "GET", f"/v1/dlq?topic={topic}", token=True).json()["entries"]
    return entries


def test_dead_letters_are_grouped_looked_at_sent_back_edited_and_deleted(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    names = [send(node, "lost", "eyJuIjogMX0=", ttl_ms=1) for _ in range(4)]
    tab.wait("document.getElementById('state').innerText.includes(' dead letters')")
    tab.wait("document.getElementById('why').innerText.includes('dead letters are in lost')")
    go(tab, "dead?topic=lost&reason=ttl")
    tab.wait("document.querySelectorAll('details.item').length === 4")
    assert tab.js("[...document.querySelectorAll('details.item code')].map((each) => each.innerText)[0]") == names[0]
    assert '"n": 1' in tab.js("document.querySelector('details.item pre').textContent")

    press(tab, "Redrive", "details.item")
    told(tab, "It is sent again.")
    tab.wait("document.querySelectorAll('details.item').length === 3")
    press(tab, "Edit and redrive", "details.item")
    answer(tab, "Send", payload='{"n": 2}')
    told(tab, "the dead letter is deleted")
    tab.wait("document.querySelectorAll('details.item').length === 2")
    # Not the oldest: the one that was pointed at goes, and no other.
    press(tab, "Delete", "details.item:last-of-type")
    answer(tab, "Delete")
    told(tab, "1 letter deleted.")
    tab.wait("document.querySelectorAll('details.item').length === 1")
    assert [each["msg_id"] for each in letters(node, "lost")] == names[2:3]

    press(tab, "Redrive", "table")
    tab.wait("document.getElementById('ask').innerText.includes('Redrive 1 dead letter?')")
    press(tab, "Cancel", "#ask")
    assert len(letters(node, "lost")) == 1
    press(tab, "Delete", "table")
    tab.wait("document.getElementById('ask').innerText.includes('Delete 1 dead letter?')")
    press(tab, "Delete", "#ask")
    told(tab, "1 letter deleted.")
    got = node.ask("mailbox", "POST", "/v1/recv", {"topic": "lost", "max_messages": 10}, token=True).json()["messages"]
    assert sorted(each["payload_b64"] for each in got) == ["eyJuIjogMX0=", "eyJuIjoyfQ=="]
    assert tab.complaints() == []


VERDICT = "document.querySelector('#view h2 .pill')?.innerText"


def test_a_token_is_issued_explained_and_revoked(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "tokens")
    press(tab, "Issue")
    answer(tab, "Issue", subject="ada", role="other", topic="orders", op="send, recv", ttl="30m")
    told(tab, "Issued.")
    token = tab.js("document.querySelector('#view pre').textContent")
    assert token.startswith("psp1")
    press(tab, "Narrow")
    answer(tab, "Narrow", token=token, caveats="op=recv")
    told(tab, "Narrowed.")
    narrow = tab.js("document.querySelector('#view pre').textContent")
    assert narrow != token
    press(tab, "Explain")
    answer(tab, "Explain", token=narrow, against="send orders")
    tab.wait(f"{VERDICT} === 'refused'")
    assert "op=recv refuses it" in tab.js("document.querySelector('.says').innerText")
    press(tab, "Explain")
    answer(tab, "Explain", token=token, against="send orders")
    tab.wait(f"{VERDICT} === 'allowed'")
    assert "ada" in tab.js("document.querySelector('#view .bits').innerText")
    tid = tab.js("document.querySelector('#view .bits').innerText.match(/tid\\s+(\\S+)/)[1]")
    press(tab, "Revoke")
    answer(tab, "Revoke", kind="tid", value=tid)
    told(tab, "Revoked.")
    press(tab, "Explain")
    answer(tab, "Explain", token=token)
    tab.wait("document.getElementById('view').innerText.includes('does not accept this token: revoked')")
    tab.wait("document.querySelector('#audit').innerText.includes('revoke')")

    keys = node.ask("passport", "GET", "/v1/keys", token=True).json()["keys"]
    issuer = tab.js("document.querySelector('#issuer').innerText")
    assert [key["kid"] for key in keys if key["kid"] not in issuer] == []
    assert tab.complaints() == []


class Upstream(SimpleHTTPRequestHandler):
    """Somebody's own service."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


def test_a_route_is_added_used_and_removed_while_the_gateway_runs(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "gateway")
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            add_route(tab, "/shop", url)
            used = node.ask("omnigate", "GET", "/shop/x")
            tab.wait(f"{row_of('/shop')}?.innerText.includes('{url}')")
        finally:
            server.shutdown()
            serving.join(10)
    press(tab, "Remove")
    answer(tab, "Remove")
    told(tab, "/shop is gone.")

    assert (used.status, used.body) == (200, b"hi")
    assert node.ask("omnigate", "GET", "/shop/x").status == 404
    assert tab.complaints() == []


def test_the_log_is_followed_and_a_corr_id_leads_to_its_lines(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    refused = node.ask("mailbox", "POST", "/v1/send", {"nonsense": 1}, token=True).json()["corr_id"]
    go(tab, f"logs?text={refused}")
    tab.wait("document.querySelectorAll('.log > div').length === 1")
    assert "request.refused" in tab.js("document.querySelector('.log').innerText")
    tab.js("document.getElementById('filter').value = 'no line says this'")
    tab.js("document.getElementById('filter').dispatchEvent(new Event('input'))")
    tab.wait("!document.querySelector('.log > div')")
    assert tab.complaints() == []


def test_an_object_is_looked_for_and_a_missing_one_is_told(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "storage")
    tab.js("document.querySelector('input[placeholder^=b3]').value = 'b3:nonsense'")
    press(tab, "Download")
    tab.wait("document.getElementById('toast').className === 'bad'")

    assert "address" in tab.js("document.getElementById('toast').innerText")


BROKEN = {
    "number": 1,
    "at": 1_700_000_000_000,
    "node": {
        "state": "ready",
        "level": "good",
        "title": "Working",
        "why": "",
        "concerns": [],
        "version": "0",
        "started_at": 1_700_000_000_000,
    },
    "now": {},
    "panels": [
        {
            "id": "failed",
            "view": "runtime",
            "title": "Failed",
            "render": "table",
            "rows": [],
            "error": "KeyError: 'topic'",
        },
        {"id": "wrong", "title": "Wrong", "render": "table", "rows": [{"a": 1}], "more": 0},  # without columns
        {
            "id": "good",
            "title": "Good",
            "render": "table",
            "rows": [{"a": "1"}],
            "columns": [["a", "a", "text"]],
            "more": 0,
        },
    ],
}


class Canned(SimpleHTTPRequestHandler):
    """The page's own files, and one frame that is not as it should be."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=str(STATIC))

    def do_GET(self) -> None:
        if self.path == "/":
            self.path = "/page.html"
        if self.path != "/events/stream":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"event: state\ndata: {json.dumps(BROKEN)}\n\n".encode())
        return None

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


def test_a_section_that_fails_says_so_and_the_others_are_drawn(browser: Chromium) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Canned) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            tab = browser.tab()
            tab.open(f"http://127.0.0.1:{server.server_port}/#/runtime")
            tab.wait("document.querySelectorAll('.panel').length === 3")
            shown = tab.js("[...document.querySelectorAll('.panel')].map((each) => each.innerText)")
        finally:
            server.shutdown()
            serving.join(10)

    assert "This section failed. KeyError: 'topic'" in shown[0]
    assert "This section failed. TypeError" in shown[1]
    assert ("failed" in shown[2], "1" in shown[2]) == (False, True)


# What lasts a few seconds may be over before a slow browser is asked for it.
REMEMBER_FULL = """
var full = '';
new MutationObserver(() => {
    const first = document.querySelector('#channels tbody tr');
    if (first?.innerText.includes('4 / 4') && first.querySelector('.bar').classList.contains('c-red'))
        full = first.innerText;
}).observe(
  document.getElementById('channels'), {childList: true, characterData: true, attributes: true, subtree: true});
"""


def test_a_full_channel_is_first_and_its_refusals_are_counted(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "runtime")
    tab.wait("document.getElementById('channels') !== null")
    tab.js(REMEMBER_FULL)
    connections = [node.connect("echo") for _ in range(8)]
    try:
        for connection in connections:
            connection.request("POST", "/v1/echo", json.dumps({"text": "x", "delay_ms": 10_000}))
        shown = tab.wait("parseInt(full.split('4 / 4')[1]) >= 3 && full")
    finally:
        for connection in connections:
            connection.close()

    assert shown.startswith("svc-echo work")


def test_a_crash_is_seen_in_the_tasks_and_in_the_events(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "runtime")
    assert node.kill_task("svc-echo:worker").status == 200
    tab.wait("document.querySelector('#events').innerText.includes('crashed')")
    tab.wait("/\\d restart/.test(document.querySelector('#tasks').innerText)")

    assert "worker" in tab.js("document.querySelector('#tasks tbody tr').innerText")


def test_a_phone_needs_no_sideways_scroll(browser: Chromium, node: NodeProcess) -> None:
    fail(node, "narrow", "x" * 400)
    tab = signed_in(browser, node, width=390)
    wider = {}
    for view in [*VIEWS, "topic/orders", "dead?topic=narrow&reason=rejected%3AValueError"]:
        go(tab, view)
        tab.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        tab.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        wider[view] = tab.js(WIDER)
        if view.startswith("dead?"):
            tab.wait("document.querySelectorAll('details.item').length === 1")
            tab.js("document.querySelector('details.item').open = true")
            # What is hidden at the edge of a card is not seen either.
            boxes = "[...document.querySelectorAll('details.item dd, details.item pre')]"
            wider["a letter"] = tab.js(f"Math.max(...{boxes}.map((e) => e.getBoundingClientRect().right)) - innerWidth")
    for path in ("/docs", "/docs/svc-mailbox"):
        tab.open(at(node, path))
        tab.wait("document.querySelector('.docs h1') !== null")
        tab.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        wider[path] = tab.js(WIDER)

    assert {place: more for place, more in wider.items() if more > 0} == {}


def test_the_sign_in_form_fits_a_phone_and_tells_a_wrong_token(browser: Chromium, node: NodeProcess) -> None:
    tab = browser.tab(width=375)
    tab.open(at(node))
    tab.wait("!document.getElementById('login').hidden && document.activeElement.id === 'token'")
    tab.type("psp1_wrong")
    tab.press("Enter")
    tab.wait_text("This is not the operator token.")

    assert tab.js(WIDER) <= 0
    assert tab.js("document.getElementById('token').value") == ""


def test_light_and_dark_follow_the_reader_and_both_have_contrast(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    luminance = """((colour) => { const [r, g, b] = colour.match(/\\d+/g).map((v) => { const c = v / 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; })"""
    seen = {}
    for dark in (False, True):
        tab.look(width=1200, dark=dark)
        paper, ink, dim = tab.js(
            f"[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, "
            f"getComputedStyle(document.getElementById('facts')).color].map({luminance})"
        )
        seen[dark] = paper
        for text in (ink, dim):
            assert (max(paper, text) + 0.05) / (min(paper, text) + 0.05) >= 4.5

    assert seen[False] > 0.8
    assert seen[True] < 0.05


def test_the_keyboard_alone_opens_views_and_sends_a_message(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    tab.open(at(node))  # anew, so that the first key starts at the top
    tab.wait(DRAWN)
    reached = []
    for _ in range(14):
        tab.press("Tab")
        reached.append(tab.js("document.activeElement.innerText.split('\\n')[0]"))
        if reached[-1].startswith("Topics"):
            tab.press("Enter")
            break
    assert reached[0] == "Skip to the view"
    tab.wait("document.getElementById('view').dataset.view === 'topics'")
    assert tab.js("document.activeElement.id") == "view"

    for _ in range(8):
        tab.press("Tab")
        if tab.js("document.activeElement.innerText") == "Send a message":
            break
    tab.press("Enter")
    tab.wait("document.getElementById('ask').open && document.activeElement.name === 'topic'")
    tab.type("typed")
    tab.press("Enter")
    told(tab, "Stored as ")
    tab.js("document.activeElement.blur()")
    for key, view in (("d", "dead"), ("r", "runtime"), ("o", "overview")):
        tab.press("g")
        tab.press(key)
        tab.wait(f"document.getElementById('view').dataset.view === '{view}'")


def test_signing_out_takes_the_figures_away(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    tab.js("document.getElementById('leave').click()")
    tab.wait("document.getElementById('token') === document.activeElement && !document.querySelector('#view .card')")
    tab.open(at(node, "/docs"))
    tab.wait("document.activeElement.id === 'token'")

    assert tab.js("location.pathname") == "/"


def test_a_killed_node_is_told_and_a_new_one_on_its_address_asks_to_sign_in(browser: Chromium, tmp_path: Path) -> None:
    where = ("--set", f"admin.bind_addr=127.0.0.1:{free_port()}")
    with NodeProcess(*where, data_dir=tmp_path) as node:
        tab = browser.tab()
        tab.open(node.page_link())
        tab.wait(DRAWN)
        node.signal(signal.SIGKILL)
        node.wait()
        tab.wait(f"/^disconnected, last update [1-9]\\d* s ago$/.test({LINK})")

        assert tab.js("document.body.classList.contains('stale')")
        assert tab.js(STATE).startswith("Working")  # what was last known, faded
    with NodeProcess(*where, data_dir=tmp_path):
        tab.wait("!document.getElementById('login').hidden")
        assert "Your session has ended." in tab.text()


# For the same reason.
REMEMBER_STATES = """
var states = [];
new MutationObserver(() => states.push(document.getElementById('state').innerText))
    .observe(document.getElementById('state'), {childList: true, characterData: true, subtree: true});
"""


def test_a_drain_is_watched_to_its_end(browser: Chromium, tmp_path: Path) -> None:
    with NodeProcess("--set", "node.echo=true", "--set", "echo.drain_deadline=5s", data_dir=tmp_path) as node:
        tab = browser.tab()
        tab.open(node.page_link())
        tab.wait(DRAWN)
        go(tab, "runtime")
        tab.js(REMEMBER_STATES)
        connection = node.begin_echo("admitted", delay_ms=2000)
        node.signal(signal.SIGTERM)
        tab.wait("states.some((each) => each.startsWith('Draining'))")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        tab.wait(f"{LINK}.startsWith('disconnected: the node has stopped')")
        code, _, err = node.wait()

        assert answer.status == 200
        assert code == 0, err
        tab.wait("/svc-echo\\s+stopped/.test(document.body.innerText)")


def setting(key: str) -> str:
    rows = "[...document.querySelectorAll('.settings tbody tr')]"
    return f"{rows}.find((row) => row.querySelector('code').innerText === '{key}')"


def test_the_configuration_shows_what_was_changed_first_and_follows_a_reload(browser: Chromium, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[http]\nread_timeout = "6s"\n')
    env = {**os.environ, "PENSTOCK_PASSPORT__KMS__PKCS11__PIN": "not-a-real-pin"}
    with NodeProcess("--config", str(config), data_dir=tmp_path / "data", env=env) as node:
        tab = browser.tab()
        tab.open(node.page_link())
        tab.wait(DRAWN)
        tab.press("g")
        tab.press("c")
        tab.wait(f"Boolean({setting('http.read_timeout')})")
        told = node.ask("admin", "GET", "/v1/node/config", token=True).json()["settings"]
        tables = "[...document.querySelectorAll('.settings tbody')].map((each) => each.children.length)"
        changed = [row for row in told if row["changed"]]
        assert tab.js(tables) == [len(changed), len(told) - len(changed)]
        shown = tab.js(f"[...{setting('http.read_timeout')}.children].slice(1).map((each) => each.innerText)")
        assert shown == ["6s", "5s", f"{config}:2", "with a reload"]
        first = tab.js("[...document.querySelector('.settings tbody').children].map((row) => row.firstChild.innerText)")
        own = [row["key"] for row in changed if not row["follows"]]
        assert [each.split("\n")[0] for each in first[: len(own)]] == own
        assert tab.js(f"{setting('passport.kms.pkcs11.pin')}.children[1].innerText") == "(redacted)"

        tab.press("/")
        tab.type("PIN redacted")
        tab.wait(f"{tables}.join() === '1,0' && Boolean({setting('passport.kms.pkcs11.pin')})")
        assert "No setting matches." in tab.text()
        tab.js("document.getElementById('filter').value = ''")
        tab.js("document.getElementById('filter').dispatchEvent(new Event('input'))")

        config.write_text('[http]\nread_timeout = "7s"\n[mailbox]\nmax_attempts = 6\n')
        press(tab, "Read the files again")
        told_in = tab.wait("document.getElementById('toast').innerText")
        tab.wait(f"{setting('http.read_timeout')}.children[1].innerText === '7s'")
        tab.wait("document.getElementById('view').innerText.includes('waits for a restart')")
        assert told_in.startswith("Read again: ")
        config.write_text('[http]\nread_timeout = "7 apples"\n')
        press(tab, "Read the files again")
        tab.wait("document.getElementById('toast').className === 'bad'")
        tab.wait("document.getElementById('view').innerText.includes('The configuration was refused')")
        assert "a duration is a number with its unit" in tab.js("document.getElementById('toast').innerText")
        assert tab.js(f"{setting('http.read_timeout')}.children[1].innerText") == "7s"
        assert "not-a-real-pin" not in tab.js("document.documentElement.outerHTML")
