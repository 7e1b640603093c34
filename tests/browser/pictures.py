"""Takes the pictures of the operator's page that the documentation shows: `scripts/screenshots`."""

from __future__ import annotations

import base64
import math
import os
import random
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.acceptance.node_process import Answer, NodeProcess, ask
from tests.browser.chromium import Chromium, Tab
from tests.browser.hands import go

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TRAFFIC_S = 150.0
# Each is sent to so often, of all sends.
TOPICS = {"orders/eu": 50, "orders/us": 25, "mails": 15, "images/thumbnails": 8, "reports/daily": 2}
POSTCODE = {"class": "ValueError", "message": "bad postcode 'SW1A'", "traceback": ""}


class Shop(BaseHTTPRequestHandler):
    """A service of somebody's behind the gateway."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer after a moment."""
        time.sleep(random.uniform(0.001, 0.006))  # lint: allow PK018 a service that takes a moment
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


class Work:
    """The doings of a small shop: orders sent, taken and acked, a page behind the gateway, and some mistakes."""

    def __init__(self, node: NodeProcess) -> None:
        """Connect to the node once."""
        self._token = node.ready["token"]
        self._mailbox, self._gateway = node.connect("mailbox"), node.connect("omnigate")

    def step(self) -> None:
        """Do a little of everything, then rest for as long as a wave of traffic has it."""
        topic = random.choices(list(TOPICS), list(TOPICS.values()))[0]
        self._ask("/v1/send", {"topic": topic, "payload": {"order": random.randrange(1000)}})
        if random.random() < 0.93:
            self._take(topic)
        if random.random() < 0.3:
            ask(self._gateway, "GET", "/shop/items")
        if random.random() < 0.02:
            self._err()
        time.sleep(0.004 * (1.2 + math.sin(time.monotonic() / 9)))  # lint: allow PK018 traffic in waves

    def _take(self, topic: str) -> None:
        for each in self._ask("/v1/recv", {"topic": topic, "max_messages": 2}).json()["messages"]:
            lease = {"msg_id": each["msg_id"], "receipt": each["receipt"]}
            if topic == "orders/eu" and random.random() < 0.004:
                self._ask("/v1/nack", {**lease, "reason": "ValueError", "error": POSTCODE, "final": True})
            else:
                self._ask("/v1/ack", lease)

    def _err(self) -> None:
        """Be refused: for a missing token, a token of nobody, or half a message."""
        mistake = random.choice(("missing", "foreign", "malformed"))
        token = {"missing": None, "foreign": "psp1_bm90aGluZw"}.get(mistake, self._token)
        ask(self._mailbox, "POST", "/v1/send", {"topic": "orders/eu"}, token)

    def _ask(self, path: str, body: dict[str, Any]) -> Answer:
        return ask(self._mailbox, "POST", path, body, self._token)


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
        shop = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        route = {"prefix": "/shop", "upstream": [f"http://127.0.0.1:{shop.server_port}"], "strip_prefix": True}
        node.ask("admin", "POST", "/admin/routes", route, token=True)
        work, ends = Work(node), time.monotonic() + TRAFFIC_S
        while time.monotonic() < ends:
            work.step()
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
