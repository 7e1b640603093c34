"""Everything that the page offers is done once by a browser: each test does what one view promises."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock.contracts.mailbox import TopicSettings
from tests.acceptance.node_process import Answer, NodeProcess, free_port
from tests.browser.chromium import PROGRAM, Chromium
from tests.browser.hands import WEBHOOK_SECRET, add_route, answer, cell, go, press, row_of, send, signed_in, told

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (on Debian: apt-get install chromium)")


def webhook(node: NodeProcess, delivery: str, secret: str = WEBHOOK_SECRET) -> Answer:
    """Deliver an event as GitHub does."""
    body = json.dumps({"zen": delivery}).encode()
    mark = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": f"sha256={mark}",
    }
    connection = node.connect("interop")
    try:
        connection.request("POST", "/webhooks/github", body, headers)
        found: http.client.HTTPResponse = connection.getresponse()
        return Answer(found.status, dict(found.getheaders()), found.read())
    finally:
        connection.close()


def inbox(place: int) -> str:
    """Name a row of the inbox; the newest is the first."""
    return f"document.querySelectorAll('#webhook-inbox > div:first-of-type tbody tr')[{place}]"


def test_webhooks_are_listed_looked_at_sent_again_and_an_endpoint_is_paused(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    go(tab, "webhooks")
    first = webhook(node, "delivery-one")
    assert first.status == 202, first.body
    assert webhook(node, "delivery-two", secret="not the secret").status == 401
    tab.wait(f"{inbox(1)}?.innerText.includes('accepted') && {inbox(0)}.innerText.includes('refused')")
    tab.wait("document.querySelector('#webhook-endpoints tbody').innerText.includes('webhooks/github')")
    tab.wait("document.querySelector('.chart').ariaLabel.includes('accepted')")
    counted = "[...document.querySelectorAll('#webhook-endpoints tbody td')].map((each) => each.innerText)"
    assert tab.js(counted)[3:9] == ["open", "1", "0", "0", "1", "\u2013"]
    assert tab.js(f"{inbox(0)}.querySelectorAll('button').length") == 1  # a refused one cannot be sent again

    press(tab, "Look", "#webhook-inbox tr:last-of-type")
    tab.wait("document.querySelector('#webhook-inbox').innerText.includes('delivery-one')")
    press(tab, "Send again", "#webhook-inbox")
    answer(tab, "Send again")
    told(tab, " repeats ")

    press(tab, "Pause", "#webhook-endpoints")
    answer(tab, "Pause")
    told(tab, "github is paused")
    assert webhook(node, "delivery-three").status == 503
    press(tab, "Resume", "#webhook-endpoints")
    told(tab, "github takes webhooks again.")
    assert webhook(node, "delivery-four").status == 202

    msg_id = first.json()["msg_id"]
    tab.js(f"[...document.querySelectorAll('#webhook-inbox a')].find((each) => each.title === '{msg_id}').click()")
    tab.wait("document.querySelector('.life')?.innerText.includes('sent to webhooks/github')")
    got = node.ask("mailbox", "POST", "/v1/recv", {"topic": "webhooks/github", "max_messages": 10}, token=True).json()
    assert [json.loads(base64.b64decode(each["payload_b64"]))["id"] for each in got["messages"]] == [
        "delivery-one",
        "delivery-one",
        "delivery-four",
    ]


def test_a_lookup_finds_who_provides_a_key_and_says_so_of_one_nobody_provides(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    go(tab, "discovery")
    key = "b3:" + "7a" * 32
    provided = node.ask(
        "dht_http", "POST", "/v1/dht/provide", {"key": key, "addrs": ["https://192.0.2.7:443"]}, token=True
    )
    assert provided.status == 200, provided.body
    ask = "document.querySelector('#view form input')"
    tab.js(f"{ask}.value = '{key}'")
    press(tab, "Look up", "#view form")
    tab.wait("document.querySelector('section.card tbody')?.innerText.includes('192.0.2.7')")
    tab.wait(f"document.querySelector('#dht-records').innerText.includes('{key[3:]}')")
    press(tab, "Look up", "#dht-records")
    tab.wait("document.querySelector('#dht-records').innerText.includes('1 provider,')")

    tab.js(f"{ask}.value = 'b3:{'7b' * 32}'")
    press(tab, "Look up", "#view form")
    tab.wait_text("Nobody provides it, as far as the network knows.")
    tab.js(f"{ask}.value = 'nonsense'")
    press(tab, "Look up", "#view form")
    tab.wait("document.getElementById('toast').className === 'bad'")
    assert "64 hex" in tab.js("document.getElementById('toast').innerText")


async def fail_once(node: NodeProcess, topic: str) -> None:
    """Have a handler fail on the one message of a topic, as a program of a user does."""
    async with connect(ports=node.ready["ports"], token=node.ready["token"]) as client:
        await client.mailbox.put_settings(topic, TopicSettings(max_attempts=1))
        await client.mailbox.send(topic, {"path": "cat.png"})
        async for delivery in client.mailbox.consume(topic):
            try:
                async with delivery:
                    resize(delivery.json()["path"])
            except FileNotFoundError:
                return


def resize(path: str) -> None:
    raise FileNotFoundError(2, "No such picture", path)


def test_the_traceback_of_a_failed_handler_is_in_its_dead_letter(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    asyncio.run(fail_once(node, "pictures"))
    go(tab, "dead")
    tab.wait(f"Boolean({row_of('pictures')})")
    tab.js(f"{row_of('pictures')}.querySelector('a').click()")
    tab.wait("document.querySelector('details.item .life pre') !== null")
    tab.js("document.querySelector('details.item').open = true")
    shown = tab.js("document.querySelector('details.item').innerText")

    assert "FileNotFoundError: [Errno 2] No such picture: 'cat.png'" in shown
    assert 'resize(delivery.json()["path"])' in tab.js("document.querySelector('.life pre').textContent")

    press(tab, "Redrive", "table")
    answer(tab, "Redrive", to="pictures/again")
    told(tab, "1 letter will be sent again.")
    tab.wait("document.querySelector('#view').innerText.includes('No dead letters.')")
    again = {"topic": "pictures/again", "wait_ms": 20_000}
    assert len(node.ask("mailbox", "POST", "/v1/recv", again, token=True).json()["messages"]) == 1


def test_topics_are_sorted_opened_by_name_and_a_message_is_found_by_its_corr_id(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    for topic, times in (("sorted/a", 1), ("sorted/b", 3), ("sorted/c", 2)):
        for _ in range(times):
            send(node, topic)
    go(tab, "topics")
    tab.wait(f"{cell('sorted/c', 1)} === '2'")
    press(tab, "waiting", "th")
    order = (
        "[...document.querySelectorAll('td a.name')].map((each) => each.innerText).filter((t) => t.startsWith('so'))"
    )
    assert tab.js(order) == ["sorted/a", "sorted/c", "sorted/b"]
    assert tab.js("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    press(tab, "waiting", "th")
    assert tab.js(order) == ["sorted/b", "sorted/c", "sorted/a"]

    tab.js("document.getElementById('filter').value = 'sorted/a'")
    press(tab, "Open")
    tab.wait("document.getElementById('view').dataset.view === 'topic'")
    peeked = node.ask("mailbox", "GET", "/v1/topics/sorted%2Fa/peek?state=ready", token=True).json()["messages"][0]
    tab.js(f"document.querySelector('form input[type=search]').value = '{peeked['corr_id']}'")
    press(tab, "Find")
    tab.wait(f"[...document.querySelectorAll('#view .card')].at(-1).innerText.includes('{peeked['msg_id']}')")
    press(tab, "1 hour")
    tab.wait("document.querySelector('.tabs [aria-pressed=true]').innerText === '1 hour'")
    tab.wait("document.querySelector('.chart .x').innerText.startsWith('-')")


def test_a_route_with_two_upstreams_that_needs_a_token_and_keeps_its_prefix(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    go(tab, "gateway")
    first, second = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    add_route(tab, "/guarded", f"{first}  {second}", "op=get  topic=orders", keep=True)
    kept = node.ask("admin", "GET", "/admin/routes", token=True).json()["routes"]
    (made,) = [each for each in kept if each["prefix"] == "/guarded"]

    assert made["upstream"] == [first, second]
    assert made["require"] == ["op=get", "topic=orders"]
    assert made["strip_prefix"] is False
    assert node.ask("omnigate", "GET", "/guarded/x").status == 401
    assert node.ask("admin", "DELETE", "/admin/routes?prefix=/guarded", token=True).status in {200, 204}


def test_a_dead_upstream_is_told_in_the_verdict_and_its_route_is_changed_to_one_that_lives(
    browser: Chromium, node: NodeProcess
) -> None:
    tab = signed_in(browser, node)
    go(tab, "gateway")
    dead = f"http://127.0.0.1:{free_port()}"
    add_route(tab, "/broken", dead)
    row = (
        "[...document.querySelectorAll('tbody tr')].find((each) => each.innerText.startsWith('/broken open to anyone'))"
    )
    tab.wait(f"{row}?.innerText.includes('well {dead}')")
    answers = [node.ask("omnigate", "GET", "/broken/x").status for _ in range(20)]
    assert set(answers) <= {502, 503}, answers
    tab.wait(f"{row}.innerText.includes('left alone {dead}')")
    tab.wait("document.getElementById('verdict').dataset.level === 'bad'")
    tab.wait("document.getElementById('state').innerText.includes('a dead upstream')")
    tab.wait("/5xx .*at most [1-9]/.test(document.querySelector('.chart').ariaLabel)")

    press(tab, "Change")
    answer(tab, "Change", upstream=f"http://127.0.0.1:{node.port('omnigate')}")
    tab.wait(f"{row}.innerText.includes('well http://127.0.0.1:{node.port('omnigate')}')")
    press(tab, "Remove")
    answer(tab, "Remove")
    told(tab, "/broken is gone.")
    tab.wait("document.getElementById('verdict').dataset.level !== 'bad'")

    assert node.ask("omnigate", "GET", "/broken/x").status == 404


def test_a_file_is_stored_and_comes_back_as_it_was(browser: Chromium, node: NodeProcess, tmp_path: Path) -> None:
    tab = signed_in(browser, node)
    go(tab, "storage")
    given = tmp_path / "given.bin"
    given.write_bytes(bytes(range(256)) * 10)
    box = tab.call("Runtime.evaluate", expression="document.querySelector('input[type=file]')")["result"]["objectId"]
    tab.call("DOM.setFileInputFiles", files=[str(given)], objectId=box)
    press(tab, "Put")
    address = tab.wait("document.querySelector('#view [role=status] code')?.innerText")
    assert node.ask("storage", "GET", f"/o/{address}", token=True).body == given.read_bytes()

    tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.js(f"document.querySelector('input[placeholder^=b3]').value = '{address}'")
    press(tab, "Download")
    came = tmp_path / address.replace(":", "-")
    while not came.exists():  # the browser writes it after the page has done its part
        tab.js("new Promise((done) => setTimeout(done, 25))")

    assert came.read_bytes() == given.read_bytes()


def test_the_log_is_filtered_by_level_and_a_message_leads_to_its_lines(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    refused = node.ask("mailbox", "POST", "/v1/send", {"nonsense": 1}, token=True).json()["corr_id"]
    go(tab, "logs")
    tab.wait(f"document.querySelector('.log').innerText.includes('{refused}')")
    tab.js(f"[...document.querySelectorAll('.log a')].find((each) => each.innerText === '{refused}').click()")
    tab.wait("document.querySelectorAll('.log > div').length === 1")
    tab.js("document.querySelector('#view select').value = 'error'")
    tab.js("document.querySelector('#view select').dispatchEvent(new Event('input'))")
    tab.wait("document.querySelectorAll('.log > div').length === 0")

    assert tab.complaints() == []


def test_tenants_at_the_gateway_are_shown_while_their_requests_run(browser: Chromium, node: NodeProcess) -> None:
    tab = signed_in(browser, node)
    go(tab, "gateway")
    connection = node.connect("omnigate")
    headers: dict[str, Any] = {"Authorization": f"Bearer {node.ready['token']}"}
    try:
        connection.request("POST", "/v1/mailbox/quiet/recv", json.dumps({"wait_ms": 20_000}), headers)
        tab.wait("document.querySelector('#gateway-tenants tbody')?.innerText.includes(' / ')")
    finally:
        connection.close()
    tab.wait("document.querySelector('#gateway-tenants').innerText.includes('and none is under way.')")

    assert "%" in tab.js("document.querySelector('#gateway-classes tbody').innerText")
