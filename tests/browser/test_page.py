"""The operator's page in a real browser against a real node: what is seen, by whom, and what happens when it breaks."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.node_process import NodeProcess, free_port
from tests.browser.chromium import PROGRAM, Chromium, Tab

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)")
PANELS = [
    "services", "channels", "tasks", "issuer", "audit", "mailbox-topics", "dead-letters", "phases", "events",
]  # fmt: skip
STATIC = Path(__file__).parents[2] / "src" / "penstock" / "admin" / "static"
LINK = "document.getElementById('link').innerText"
WIDER = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    options = (
        "--set",
        "node.echo=true",
        "--set",
        "node.chaos=true",
        "--set",
        "echo.channels.work=4",
        "--set",
        "echo.workers=1",
    )
    with NodeProcess(*options, data_dir=tmp_path_factory.mktemp("node")) as running:
        yield running


def at(node: NodeProcess, path: str = "/") -> str:
    return f"http://127.0.0.1:{node.port('admin')}{path}"


def signed_in(browser: Chromium, node: NodeProcess, **look: bool | int) -> Tab:
    """Come in by the form, as an operator who has the token."""
    tab = browser.tab(**look)  # type: ignore[arg-type]
    tab.open(at(node))
    tab.wait("!document.getElementById('login').hidden && document.activeElement.id === 'token'")
    tab.type(node.ready["token"])
    tab.press("Enter")
    tab.wait("document.querySelectorAll('.panel').length")
    tab.events.clear()  # the first look, without a session, was refused: that is in the console
    return tab


def test_the_one_time_link_shows_the_node_and_leaves_nothing_behind(browser: Chromium, tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        tab = browser.tab()
        tab.open(node.ready["dashboard"])
        tab.wait("document.querySelectorAll('.panel').length")

        assert tab.js("document.getElementById('state').innerText") == "ready"
        assert set(tab.js("[...document.querySelectorAll('.panel')].map((each) => each.id)")) >= set(PANELS)
        rows = tab.js("[...document.querySelectorAll('#services .row .name')].map((each) => each.innerText)")
        status = node.ask("admin", "GET", "/status", token=True).json()
        assert sorted(rows) == sorted(each["service"] for each in status["services"])
        assert tab.js("location.href") == at(node)
        assert tab.js("document.cookie") == ""
        assert tab.complaints() == []
        assert {url.partition("/events")[0].partition("/assets")[0] for url in tab.requested()} <= {
            at(node)[:-1],
            at(node),
            at(node, "/login"),
        }

        second = browser.tab()
        second.open(node.ready["dashboard"])
        second.wait_text("This link was used before, or is too old.")
        assert second.js("document.getElementById('panels').hidden")


def test_real_traffic_changes_the_figures(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    row = "[...document.querySelectorAll('#mailbox-topics .row')].find((each) => each.innerText.startsWith('orders'))"
    for _ in range(3):
        assert (
            node.ask("mailbox", "POST", "/v1/send", {"topic": "orders", "payload_b64": "aGk="}, token=True).status
            == 200
        )
    tab.wait(f"{row}.querySelector('[data-title=ready]').innerText === '3'")
    node.ask("mailbox", "POST", "/v1/recv", {"topic": "orders"}, token=True)
    tab.wait(f"{row}.querySelector('[data-title=\"in flight\"]').innerText === '1'")

    assert tab.js(f"{row}.querySelector('[data-title=ready]').innerText") == "2"
    assert tab.complaints() == []


def button(panel: str, label: str) -> str:
    return f"[...document.querySelectorAll('#{panel} button')].find((each) => each.innerText === '{label}')"


def press(tab: Tab, panel: str, label: str) -> None:
    """Press a button as a hand does: it has the focus, and keeps it."""
    tab.wait(button(panel, label))
    tab.js(f"(() => {{ const found = {button(panel, label)}; found.focus(); found.click(); }})()")


def test_dead_letters_are_looked_at_and_sent_back_after_a_question(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    letter = {"topic": "lost", "payload_b64": "aGk=", "ttl_ms": 1}
    sent = node.ask("mailbox", "POST", "/v1/send", letter, token=True).json()
    tab.wait("document.querySelector('#dead-letters').innerText.includes('lost')")

    press(tab, "dead-letters", "Look")
    tab.wait(f"document.querySelector('#dead-letters .found').innerText.includes('{sent['msg_id']}')")
    assert "\nttl\n" in tab.js("document.querySelector('#dead-letters .found').innerText")

    press(tab, "dead-letters", "Send back")
    tab.wait(button("dead-letters", "Send up to 1,000 back?"))
    tab.js("document.activeElement.blur()")
    tab.wait(button("dead-letters", "Send back"))
    assert tab.js("document.querySelector('#dead-letters [role=status]').innerText") == "The oldest of lost:"

    press(tab, "dead-letters", "Send back")
    press(tab, "dead-letters", "Send up to 1,000 back?")
    tab.wait("document.querySelector('#dead-letters [role=status]').innerText === '1 of lost go back.'")
    assert tab.complaints() == []


def test_the_issuer_shows_its_keys_and_the_audit_what_was_issued(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    keys = node.ask("passport", "GET", "/v1/keys", token=True).json()["keys"]
    wanted = {"subject_ref": "ada", "audience": ["svc-mailbox"], "caveats": ["op=send"]}
    issued = node.ask("passport", "POST", "/v1/passport/issue", wanted, token=True)
    tab.wait("/issue\\s+\\d+: tid/.test(document.querySelector('#audit').innerText)")
    shown = tab.js("document.querySelector('#issuer').innerText")

    assert issued.status == 200, issued.body
    assert "issuance\nopen" in shown
    assert [key["kid"] for key in keys if key["kid"] not in shown] == []
    assert "records 1, head" in tab.js("document.querySelector('#audit .row').innerText")
    assert issued.json()["token"] not in tab.text()
    assert tab.complaints() == []


BROKEN = {
    "number": 1,
    "at": 1_700_000_000_000,
    "node": {"state": "ready", "why": "", "version": "0", "started_at": 1_700_000_000_000},
    "panels": [
        {"id": "failed", "title": "Failed", "render": "table", "rows": [], "error": "KeyError: 'topic'"},
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
            tab.open(f"http://127.0.0.1:{server.server_port}/")
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
    const first = document.querySelector('#channels .row:not(.head)');
    if (first.innerText.includes('4 / 4') && first.querySelector('.meter').dataset.level === 'bad')
        full = first.innerText;
}).observe(
  document.getElementById('channels'), {childList: true, characterData: true, attributes: true, subtree: true});
"""


def test_a_full_channel_is_first_and_its_refusals_are_counted(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
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
    assert node.kill_task("svc-echo:worker").status == 200
    tab.wait("document.querySelector('#events').innerText.includes('crashed')")
    tab.wait("/\\d restart/.test(document.querySelector('#tasks').innerText)")

    assert "worker" in tab.js("document.querySelector('#tasks .row').innerText")


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/svc-mailbox"])
def test_a_phone_needs_no_sideways_scroll(browser: Chromium, node: NodeProcess, path: str) -> None:
    tab = signed_in(browser, node, width=375)
    if path != "/":
        tab.open(at(node, path))
        tab.wait("document.querySelector('.docs h1') !== null")
    tab.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    assert tab.js(WIDER) <= 0
    assert tab.js("document.body.innerText.length") > 100


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


def test_the_keyboard_reaches_every_section(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    tab.open(at(node))  # anew, so that the first key starts at the top
    tab.wait("document.querySelectorAll('.panel').length")
    reached = []
    for _ in range(120):
        tab.press("Tab")
        reached.append(tab.js("document.activeElement.id || document.activeElement.innerText"))
        if reached[-1] == PANELS[-1]:
            break

    assert [each for each in reached if each in PANELS] == PANELS
    assert reached[0] == "Skip to the figures"
    assert {"verdict", "leave", "API"} <= set(reached)


def test_signing_out_takes_the_figures_away(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    tab.js("document.getElementById('leave').click()")
    tab.wait("document.getElementById('token') === document.activeElement && !document.querySelector('.panel')")
    tab.open(at(node, "/docs"))
    tab.wait("document.activeElement.id === 'token'")

    assert tab.js("location.pathname") == "/"


def test_a_killed_node_is_told_and_a_new_one_on_its_address_asks_to_sign_in(browser: Chromium, tmp_path: Path) -> None:
    where = ("--set", f"admin.bind_addr=127.0.0.1:{free_port()}")
    with NodeProcess(*where, data_dir=tmp_path) as node:
        tab = browser.tab()
        tab.open(node.ready["dashboard"])
        tab.wait("document.querySelectorAll('.panel').length")
        node.signal(signal.SIGKILL)
        node.wait()
        tab.wait(f"/^disconnected, last update [1-9]\\d* s ago$/.test({LINK})")

        assert tab.js("document.body.classList.contains('stale')")
        assert tab.js("document.getElementById('state').innerText") == "ready"  # what was last known, faded
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
        tab.open(node.ready["dashboard"])
        tab.wait("document.querySelectorAll('.panel').length")
        tab.js(REMEMBER_STATES)
        connection = node.begin_echo("admitted", delay_ms=2000)
        node.signal(signal.SIGTERM)
        tab.wait("states.includes('draining')")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        tab.wait(f"{LINK}.startsWith('disconnected: the node has stopped')")
        code, _, err = node.wait()

        assert answer.status == 200
        assert code == 0, err
        assert "svc-echo\nstopped" in tab.text()
