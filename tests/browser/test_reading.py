"""What an operator reads in a hurry: how messages begin, every dead letter, a log that stands still, on a phone too."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess
from tests.browser.chromium import PROGRAM, Chromium
from tests.browser.hands import DRAWN, answer, fail, go, later_frames, press, send, signed_in, told

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)")
GLIMPSES = "[...document.querySelectorAll('details.item .glimpse')].map((each) => each.innerText)"
ITEMS = "document.querySelectorAll('details.item').length"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_list_of_messages_shows_how_each_text_begins(browser: Chromium, node: NodeProcess) -> None:
    send(node, "glimpsed", encoded('{"to":\n  "Ada"}'))
    send(node, "glimpsed", encoded("x" + "é" * 399))  # the cut goes through a letter
    send(node, "glimpsed", "AAECA/8=")
    tab = signed_in(browser, node)
    go(tab, "topic/glimpsed")
    tab.wait(f"{ITEMS} === 3")

    assert tab.js(GLIMPSES) == ['{"to": "Ada"}', "x" + "é" * 159, ""]


def test_every_dead_letter_can_be_listed_and_says_its_error(browser: Chromium, node: NodeProcess) -> None:
    fail(node, "many", "", times=60)
    tab = signed_in(browser, node)
    go(tab, "dead?topic=many&reason=rejected%3AValueError")
    tab.wait(f"{ITEMS} === 50")
    press(tab, "Show more")
    tab.wait(f"{ITEMS} === 60")

    assert set(tab.js(GLIMPSES)) == {"bad postcode"}
    more = "[...document.querySelectorAll('#view button')].find((each) => each.textContent === 'Show more')"
    tab.wait(f"{more}.hidden")


def many(node: NodeProcess, topic: str, count: int, **more: object) -> list[str]:
    """Send many messages; returns their ids."""
    sent = []
    while len(sent) < count:
        numbers = range(len(sent), min(len(sent) + 256, count))
        messages = [{"topic": topic, "payload_b64": encoded(f"number {number}"), **more} for number in numbers]
        answer = node.ask("mailbox", "POST", "/v1/send/batch", {"messages": messages}, token=True)
        sent += [each["msg_id"] for each in answer.json()["results"]]
    return sent


SHOW_MORE = "[...document.querySelectorAll('#view button')].find((each) => each.textContent === 'Show more')"
IDS = "[...document.querySelectorAll('details.item summary code')].map((each) => each.innerText)"


def test_a_long_error_is_cut_and_can_be_opened(browser: Chromium, node: NodeProcess) -> None:
    message = "row 7: " + "x" * 990 + " the end"
    fail(node, "long/error", "", message=message)
    tab = signed_in(browser, node)
    go(tab, "dead?topic=long%2Ferror&reason=rejected%3AValueError")
    tab.wait("document.querySelector('details.item .life b') !== null")
    tab.js("document.querySelector('details.item').open = true")
    shown = tab.js("document.querySelector('.life').innerText")
    tab.js("document.querySelector('.life summary').click()")

    assert "row 7: xxx" in shown
    assert len(shown) < 300
    tab.wait(f"document.querySelector('.life').innerText.includes({json.dumps(message)})")


def test_every_message_of_a_topic_can_be_listed(browser: Chromium, node: NodeProcess) -> None:
    sent = many(node, "listed", 310)
    many(node, "listed", 1, delay_ms=3_600_000)
    tab = signed_in(browser, node)
    go(tab, "topic/listed")
    tab.wait(f"{ITEMS} === 50")
    tab.js("document.querySelector('details.item').open = true")
    assert "The oldest 50." in tab.js("document.getElementById('view').innerText")
    for shown in (100, 150, 200, 250, 300, 310):
        press(tab, "Show more")
        tab.wait(f"{ITEMS} === {shown}")

    tab.wait(f"{SHOW_MORE}.hidden")
    assert tab.js(IDS) == sent
    assert tab.js(GLIMPSES)[1:] == [f"number {number}" for number in range(1, 310)]
    assert tab.js("document.querySelector('details.item').open"), "what was open stays open"
    assert "The oldest" not in tab.js("document.getElementById('view').innerText")
    press(tab, "Delayed")
    tab.wait(f"{ITEMS} === 1")
    press(tab, "Waiting")
    tab.wait(f"{ITEMS} === 50")


def test_a_message_far_behind_is_found_by_its_id(browser: Chromium, node: NodeProcess) -> None:
    last = many(node, "behind", 300)[-1]
    tab = signed_in(browser, node)
    go(tab, f"topic/behind?find={last}")
    life = "[...document.querySelectorAll('#view .card')].at(-1).innerText"
    tab.wait(f"{life}.includes('sent to behind')")

    assert "waiting 0 attempts so far" in tab.js(life)
    assert last in tab.js(life)


def test_a_letter_behind_many_of_another_reason_shows_its_payload_and_can_be_edited(
    browser: Chromium, node: NodeProcess
) -> None:
    node.ask("mailbox", "PUT", "/v1/topics/mixed/settings", {"max_attempts": 1}, token=True)
    many(node, "mixed", 260)
    asked = {"topic": "mixed", "max_messages": 256}
    while taken := node.ask("mailbox", "POST", "/v1/recv", asked, token=True).json()["messages"]:
        nacks = [{"msg_id": each["msg_id"], "receipt": each["receipt"]} for each in taken]
        node.ask("mailbox", "POST", "/v1/nack", {"nacks": nacks}, token=True)
    late = many(node, "mixed", 60, ttl_ms=1)
    tab = signed_in(browser, node)
    go(tab, "dead?topic=mixed&reason=ttl")
    tab.wait(f"{ITEMS} === 50")
    press(tab, "Show more")
    tab.wait(f"{ITEMS} === 60")

    assert tab.js(IDS) == late
    assert tab.js(GLIMPSES) == [f"number {number}" for number in range(60)]
    edit = "[...document.querySelectorAll('details.item button')].filter((each) => each.textContent.startsWith('Edit'))"
    assert tab.js(f"{edit}.map((each) => each.disabled)") == [False] * 60
    tab.js(f"{edit}.at(-1).click()")
    answer(tab, "Send", payload="mended")
    told(tab, "the dead letter is deleted.")
    tab.wait(f"{ITEMS} === 59")
    seen = node.ask("mailbox", "GET", "/v1/topics/mixed/peek?state=ready&payload=1", token=True).json()["messages"]
    assert [each["payload_b64"] for each in seen] == [encoded("mended")]
    assert tab.complaints() == []


def test_a_letter_that_comes_as_another_goes_is_listed(browser: Chromium, node: NodeProcess) -> None:
    fail(node, "swapped", "")
    tab = signed_in(browser, node)
    go(tab, "dead?topic=swapped&reason=rejected%3AValueError")
    tab.wait(f"{ITEMS} === 1")
    first = tab.js("document.querySelector('details.item code').innerText")
    # The number of dead letters is the same afterwards.
    asked = {"topic": "swapped", "msg_id": first, "limit": 1}
    assert node.ask("mailbox", "POST", "/v1/dlq/delete", asked, token=True).json()["deleted"] == 1
    fail(node, "swapped", "")

    tab.wait(f"{ITEMS} === 1 && document.querySelector('details.item code').innerText !== '{first}'")


# The first question about dead letters is answered after the second one.
HOLD_THE_FIRST = """window.asked = 0; const real = window.fetch;
window.fetch = async (path, options) => {
  const answer = await real(path, options);
  if (String(path).startsWith('/dead-letters') && (window.asked += 1) === 1)
    await new Promise((done) => { window.go_on = done; });
  return answer;
}; true"""


def test_an_answer_that_comes_late_does_not_bring_a_deleted_letter_back(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    fail(node, "late", "")
    tab.js(HOLD_THE_FIRST)
    go(tab, "dead?topic=late&reason=rejected%3AValueError")
    tab.wait("window.asked >= 1 && Boolean(window.go_on)")
    assert "No dead letters." not in tab.js("document.getElementById('view').innerText")
    deleted = node.ask("mailbox", "POST", "/v1/dlq/delete", {"topic": "late", "limit": 10}, token=True).json()[
        "deleted"
    ]
    tab.wait("window.asked >= 2 && document.getElementById('view').innerText.includes('No dead letters.')")
    tab.js("window.go_on(); new Promise((done) => setTimeout(done, 0))")
    later_frames(tab, 1)

    assert deleted == 1
    assert "No dead letters." in tab.js("document.getElementById('view').innerText")


def test_a_long_payload_is_edited_from_its_beginning(browser: Chromium, node: NodeProcess) -> None:
    send(node, "edited/long", encoded("\n".join(map(str, range(200)))), ttl_ms=1)
    tab = signed_in(browser, node)
    go(tab, "dead?topic=edited%2Flong&reason=ttl")
    press(tab, "Edit and redrive", "details.item")
    tab.wait("document.getElementById('ask').open")

    assert tab.js("[document.activeElement.scrollTop, document.activeElement.selectionStart]") == [0, 0]


def test_a_paused_log_stands_still_until_it_goes_on(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "logs")
    tab.wait("document.querySelectorAll('.log > div').length > 0")
    press(tab, "Pause")
    before = tab.js("document.querySelector('.log').innerText")
    refused = node.ask("mailbox", "POST", "/v1/send", {"nonsense": 1}, token=True).json()["corr_id"]
    # Two more frames came, and would have brought the line.
    later_frames(tab, 2)
    assert tab.js("document.querySelector('.log').innerText") == before
    press(tab, "Go on")

    tab.wait(f"document.querySelector('.log').innerText.includes('{refused}')")


def test_the_audit_is_a_table_with_times_for_people(browser: Chromium, node: NodeProcess) -> None:
    asked = {"subject_ref": "audited", "audience": ["svc-mailbox"], "ttl_s": 600, "caveats": ["op=recv", "topic=a/"]}
    issued = node.ask("passport", "POST", "/v1/passport/issue", asked, token=True).json()
    tab = signed_in(browser, node)
    go(tab, "tokens")
    row = "[...document.querySelectorAll('#audit tbody tr')].find((each) => each.innerText.includes('audited'))"
    tab.wait(f"Boolean({row})")
    cells = tab.js(f"[...{row}.children].map((each) => each.innerText)")
    heads = tab.js("[...document.querySelectorAll('#audit th')].map((each) => each.innerText)")
    told = dict(zip(heads, cells, strict=True))

    assert (told["what"], told["subject"], told["for services"]) == ("issue", "audited", "svc-mailbox")
    assert told["caveats"] == "op=recv topic=a/"
    assert told["until"].count(":") == 2
    assert f"tid {issued['tid']}" in told["more"]


VISIBLE = """((box) => box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight)(
  document.querySelector('%s').getBoundingClientRect())"""


def test_on_a_phone_the_open_view_and_a_broken_stream_are_seen(browser: Chromium, tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        tab = browser.tab(width=390)
        tab.open(node.page_link())
        tab.wait(DRAWN)
        seen = {}
        for view in ("configuration", "logs", "overview", "tokens"):
            go(tab, view)
            seen[view] = tab.js(VISIBLE % "#views a[aria-current]")
        node.signal(signal.SIGKILL)
        node.wait()
        tab.wait("document.getElementById('link').innerText.startsWith('disconnected')")

    assert seen == dict.fromkeys(seen, True)
    assert tab.js(VISIBLE % "#link")


def test_a_topic_has_a_chart_of_its_flow_and_one_of_its_backlog(browser: Chromium, node: NodeProcess) -> None:
    for _ in range(3):
        send(node, "charted/orders")
    tab = signed_in(browser, node)
    go(tab, "topic/charted%2Forders")

    tab.wait("document.getElementById('view').innerText.includes('waiting 3')")

    titles = tab.js("[...document.querySelectorAll('#view .card:has(.chart) h2')].map((each) => each.innerText)")
    assert titles == ["Messages a second", "Backlog"]
