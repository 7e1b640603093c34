"""What is filled in on the page: a route is changed field by field, a filter is typed fast, tokens have roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.sdk.passport import producer_caveats, worker_caveats
from tests.acceptance.node_process import NodeProcess, free_port
from tests.browser.chromium import PROGRAM, Chromium, Tab
from tests.browser.hands import DRAWN, add_route, answer, go, press, put, send, signed_in, tick, told

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
COUNT_FRAMES = """window.came = 0;
new MutationObserver(() => { window.came += 1; })
    .observe(document.getElementById('facts'), {childList: true, characterData: true, subtree: true})"""
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


# --- answers that come late, or not at all

# What is asked of this path is kept back until the test lets it go.
HOLD = """window.held = []; const through = window.fetch;
window.fetch = async (path, options) => {
  const answer = await through(path, options);
  if (String(path).startsWith('%s')) await new Promise((done) => window.held.push(done));
  return answer;
}; true"""


def test_a_question_that_was_left_does_not_close_the_next_one(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "topics")
    tab.js(HOLD % "/api/mailbox/v1/send")
    press(tab, "Send a message")
    answer(tab, "Send", topic="left", payload="1")
    tab.wait("window.held.length === 1")
    tab.press("Escape")
    tab.wait(f"!{DIALOG}.open")
    press(tab, "Send a message")
    tab.wait(f"{DIALOG}.open")
    put(tab, "#ask [name=topic]", "typed")
    tab.js("window.held[0](); new Promise((done) => setTimeout(done, 50))")

    assert tab.js(f"{DIALOG}.open")
    assert tab.js("document.querySelector('#ask [name=topic]').value") == "typed"


def test_a_message_whose_answer_was_lost_is_stored_once_though_it_is_sent_again(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    go(tab, "topics")
    tab.js("""window.sends = 0; const through = window.fetch;
    window.fetch = async (path, options) => {
      const answer = await through(path, options);
      if (String(path).endsWith('/send') && ++window.sends === 1) throw new TypeError('Failed to fetch');
      return answer;
    }; true""")
    press(tab, "Send a message")
    answer(tab, "Send", topic="sent/again", payload="1")
    tab.wait(f"{DIALOG}.innerText.includes('The node does not answer')")
    press(tab, "Send", "#ask")
    told(tab, "Stored as ")
    stored = node.ask("mailbox", "GET", "/v1/topics?prefix=sent/", token=True).json()["topics"]

    assert [(each["topic"], each["ready"]) for each in stored] == [("sent/again", 1)]


# --- more topics than are followed


def test_the_filter_and_the_order_reach_every_topic_of_a_node(browser: Chromium, tmp_path: Path) -> None:
    names = [f"many/{n:03d}" for n in range(230)]
    with NodeProcess(data_dir=tmp_path) as node:
        # Each of the others is busier, so that the last ones are not among the busiest.
        for start in range(0, len(names), 115):
            messages = [{"topic": name, "payload": 1} for name in names[start : start + 115] * 2]
            node.ask("mailbox", "POST", "/v1/send/batch", {"messages": messages}, token=True)
        tab = browser.tab()
        tab.open(node.page_link())
        tab.wait(DRAWN)
        tab.wait("document.querySelectorAll('td a.name').length === 8")
        for name in ("zz/Needle-one", "zz/needle-two", "aa/quiet"):
            send(node, name)
        go(tab, "topics")
        rows = "[...document.querySelectorAll('td a.name')].map((each) => each.innerText)"
        tab.wait("document.getElementById('view').innerText.includes('The first 200 of 233 topics.')")
        assert tab.js(f"{rows}.length") == 200
        tab.press("/")
        for letter in "needle":
            tab.type(letter)
        tab.wait(f"{rows}.length === 2")
        assert sorted(tab.js(rows)) == ["zz/Needle-one", "zz/needle-two"]
        assert "2 that match, of 233 topics" in tab.text()
        put(tab, "#filter", "")
        tab.wait(f"{rows}.length === 200")

        press(tab, "topic", "th")
        tab.wait(f"{rows}[0] === 'aa/quiet'")
        assert tab.js("document.querySelector('th[aria-sort]').ariaSort") == "ascending"
        press(tab, "topic", "th")
        tab.wait(f"{rows}[0] === 'zz/needle-two'")
        press(tab, "waiting", "th")
        press(tab, "waiting", "th")
        tab.wait(f"{rows}.slice(0, 3).sort().join() === 'aa/quiet,zz/Needle-one,zz/needle-two'")
        assert tab.complaints() == []


def test_a_slow_search_is_waited_for_and_not_asked_again(browser: Chromium, tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        # Nothing is in it, so it is not among the busiest: only a search finds it.
        node.ask("mailbox", "PUT", "/v1/topics/set%2Fup/settings", {"max_attempts": 3}, token=True)
        tab = browser.tab()
        tab.open(node.page_link())
        tab.wait(DRAWN)
        tab.js(HOLD % "/topics")
        # Between two frames more time passes than between two questions.
        tab.js("{ const began = performance.now; performance.now = () => began.call(performance) * 100; }")
        go(tab, "topics")
        tab.wait("window.held.length === 1")
        tab.js(COUNT_FRAMES)
        for _ in range(2):
            tab.js("window.came = 0")
            tab.wait("window.came >= 1")
        asked = tab.js("window.held.length")
        tab.js("window.held[0]()")
        tab.wait("[...document.querySelectorAll('td a.name')].some((each) => each.innerText === 'set/up')")

        assert asked == 1


# --- tokens


def issued(tab: Tab) -> list[str]:
    """List the caveats of the token that is shown."""
    shown: str = tab.js("document.querySelector('#view .bits dd').innerText")
    return shown.split()


def test_a_token_is_issued_by_role_as_the_command_line_does(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "tokens")
    press(tab, "Issue")
    tab.wait(f"{DIALOG}.open")
    tick(tab, "send")
    tick(tab, "store_get")
    answer(tab, "Issue", subject="resizer", topic="images/", ttl="20m")
    told(tab, "Issued.")
    worker, audience = issued(tab), worker_caveats("images/", send=True, store=["get"])
    assert worker == list(audience[1])
    token = tab.js("document.querySelector('#view pre').textContent")
    claims = node.ask("passport", "POST", "/v1/passport/verify", {"token": token, "context": {}}, token=True).json()
    assert claims["claims"]["aud"] == list(audience[0])
    assert claims["claims"]["exp"] - claims["claims"]["iat"] == 1200

    press(tab, "Issue")
    answer(tab, "Issue", subject="shop", role="producer", topic="orders/eu", more="budget.reqs=5", rps="3")
    tab.wait("document.querySelector('#view .bits').innerText.includes('op=send ')")
    assert issued(tab) == [*producer_caveats("orders/eu", store=[])[1], "rate.rps=3", "budget.reqs=5"]
    press(tab, "Issue")
    answer(tab, "Issue", subject="nobody", topic="", role="worker", ttl="soon")
    assert tab.js(f"{DIALOG}.open")
    answer(tab, "Issue", topic="orders/")
    tab.wait(f"{DIALOG}.innerText.includes('Say how long it lives')")
    press(tab, "Cancel", "#ask")


def test_a_token_that_was_shown_once_is_copied_and_hidden(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "tokens")
    press(tab, "Issue")
    answer(tab, "Issue", subject="copied", topic="orders/")
    told(tab, "Issued.")
    token = tab.js("document.querySelector('#view pre').textContent")
    # Away from this machine and without TLS a browser gives pages no clipboard: the older way has to do.
    tab.js("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    tab.js("document.addEventListener('copy', () => { window.copied = String(getSelection()); })")
    press(tab, "Copy")
    tab.wait("Boolean(window.copied)")
    assert tab.js("window.copied.trim()") == token
    press(tab, "Hide")

    assert token not in tab.js("document.documentElement.outerHTML")


def test_a_token_whose_dialog_was_left_before_it_came_is_shown_all_the_same(
    browser: Chromium, node: NodeProcess
) -> None:
    shown = "document.querySelector('#view pre')?.textContent"
    tab = signed_in(browser, node)
    go(tab, "tokens")
    tab.js(HOLD % "/api/passport/v1/passport/issue")
    press(tab, "Issue")
    answer(tab, "Issue", subject="left", topic="orders/")
    tab.wait("window.held.length === 1")
    tab.press("Escape")
    tab.wait(f"!{DIALOG}.open")
    tab.js("window.held[0]()")
    tab.wait(f"{shown}?.startsWith('psp1')")
    first = tab.js(shown)

    press(tab, "Issue")
    answer(tab, "Issue", subject="left", topic="orders/")
    tab.wait("window.held.length === 2")
    tab.press("Escape")
    go(tab, "storage")
    tab.js("window.held[1]()")
    told(tab, "The token is there: open Tokens to see it.")
    go(tab, "tokens")
    tab.wait(f"{shown}?.startsWith('psp1')")
    second = tab.js(shown)
    go(tab, "storage")
    go(tab, "tokens")

    assert first != second
    assert tab.js(f"{shown} === undefined")


def explained(tab: Tab, token: str, against: str) -> tuple[str, str, str]:
    """Ask what a token is good for; returns the verdict, the reason and what each condition says."""
    tab.js("document.querySelector('.says')?.remove()")
    press(tab, "Explain")
    answer(tab, "Explain", token=token, against=against)
    tab.wait("document.querySelector('.says') !== null")
    card = "document.querySelector('.says').closest('section')"
    shown = f"[{card}.querySelector('h2 .pill').innerText, {card}.querySelector('p').innerText]"
    verdict, why = tab.js(shown)
    return verdict, why, tab.js("document.querySelector('.says').innerText")


def test_a_token_that_was_typed_is_not_kept_in_the_closed_dialog(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "tokens")
    press(tab, "Explain")
    answer(tab, "Explain", token=node.ready["token"])
    tab.wait("document.getElementById('view').innerText.includes('What the token says')")
    tab.wait(f"!{DIALOG}.open && !{DIALOG}.firstChild")
    press(tab, "Explain")
    tab.wait(f"{DIALOG}.open")
    put(tab, "#ask [name=token]", node.ready["token"])
    tab.press("Escape")
    tab.wait(f"!{DIALOG}.open && !{DIALOG}.firstChild")

    assert node.ready["token"] not in tab.js("document.documentElement.innerHTML")
    assert tab.complaints() == []


def test_an_explanation_says_which_caveat_decides_about_a_request(browser: Chromium, node: NodeProcess) -> None:
    asked = {
        "subject_ref": "explained",
        "audience": ["svc-mailbox", "svc-storage"],
        "ttl_s": 600,
        "caveats": ["svc-mailbox:op=recv,ack", "svc-mailbox:topic=images/", "svc-storage:op=get", "ip=10.0.0.0/8"],
    }
    token = node.ask("passport", "POST", "/v1/passport/issue", asked, token=True).json()["token"]
    tab = signed_in(browser, node)
    go(tab, "tokens")

    verdict, why, says = explained(tab, token, "recv images/cat")
    assert (verdict, says.splitlines()[-1]) == ("allowed", "ip=10.0.0.0/8 depends on more than was said")
    assert "It also depends on ip=10.0.0.0/8." in why
    verdict, why, says = explained(tab, token, "send images/cat")
    assert (verdict, "svc-mailbox:op=recv,ack refuses it" in says) == ("refused", True)
    assert "It may not send images/cat. This needs op=send; the token allows svc-mailbox:op=recv,ack." in why
    verdict, why, says = explained(tab, token, "recv orders/1")
    assert "svc-mailbox:topic=images/ refuses it" in says
    assert "svc-storage:op=get is about another service" in says
    verdict, why, says = explained(tab, token, "find")
    assert (verdict, says.splitlines()[0]) == ("refused", "aud=svc-mailbox,svc-storage refuses it")
    verdict, why, says = explained(tab, token, "")
    assert (verdict, "its issuer signed it" in why, "it" in says.split()) == ("good", True, False)
    press(tab, "Explain")
    answer(tab, "Explain", token="psp1.nonsense", against="")
    tab.wait(f"{DIALOG}.querySelector('[role=alert]').innerText.length > 10")
    press(tab, "Cancel", "#ask")
