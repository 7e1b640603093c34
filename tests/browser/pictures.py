"""Takes the pictures of the operator's page that the documentation shows: `scripts/screenshots`."""

from __future__ import annotations

import base64
import http.client
import os
import random
import tempfile
import time
from pathlib import Path

from tests.acceptance.node_process import NodeProcess, ask
from tests.browser.chromium import Chromium, Tab
from tests.browser.hands import go

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TRAFFIC_S = 75.0
TOPICS = ("orders/eu", "orders/us", "mails", "images/thumbnails")


def work(node: NodeProcess, mailbox: http.client.HTTPConnection) -> None:
    """Send to a topic, and take and acknowledge what is there; a few messages die, and a few requests are refused."""
    topic, token = random.choice(TOPICS), node.ready["token"]
    ask(mailbox, "POST", "/v1/send", {"topic": topic, "payload": {"order": random.randrange(1000)}}, token)
    if random.random() < 0.9:
        got = ask(mailbox, "POST", "/v1/recv", {"topic": topic, "max_messages": 2}, token).json()["messages"]
        for each in got:
            ask(mailbox, "POST", "/v1/ack", {"msg_id": each["msg_id"], "receipt": each["receipt"]}, token)
    if random.random() < 0.005:
        ask(mailbox, "POST", "/v1/send", {"topic": "mails", "payload": "too late", "ttl_ms": 1}, token)
    if random.random() < 0.01:
        ask(mailbox, "POST", "/v1/send", {"topic": topic}, token)


def take(tab: Tab, name: str) -> None:
    """Write what is seen of the page now."""
    shot = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
    (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    """Start a node and a browser, have them work for a while, and write the pictures."""
    PICTURES.mkdir(exist_ok=True)
    env = {**os.environ, "PENSTOCK_MAILBOX__IDLE_TIMEOUT": "50s"}
    changed = ("--set", "http.read_timeout=6s")
    with (
        tempfile.TemporaryDirectory() as home,
        NodeProcess(*changed, data_dir=Path(home), env=env) as node,
        Chromium() as browser,
    ):
        mailbox, ends = node.connect("mailbox"), time.monotonic() + TRAFFIC_S
        while time.monotonic() < ends:
            work(node, mailbox)
        tab = browser.tab(width=1400)
        tab.open(node.page_link())
        tab.wait_text("orders/eu")
        tab.wait("document.querySelector('.chart path')?.getAttribute('d')")
        take(tab, "operator-page")
        tab.look(width=1400, dark=True)
        take(tab, "operator-page-dark")
        tab.look(width=1400, dark=False)
        go(tab, "configuration")
        tab.wait("document.querySelector('.settings tbody tr') !== null")
        tab.press("/")
        tab.type("timeout")  # the name of a passing data directory is nothing for a picture
        take(tab, "configuration")


if __name__ == "__main__":
    main()
