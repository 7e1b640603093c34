"""Takes the pictures of the operator's page that the documentation shows: `scripts/screenshots`."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tests.acceptance.node_process import NodeProcess
from tests.browser.chromium import Chromium

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def fill(node: NodeProcess) -> None:
    """Send some messages, so that the page has something to show."""
    for number in range(60):
        topic = ("orders/eu", "orders/us", "mails")[number % 3]
        node.ask("mailbox", "POST", "/v1/send", {"topic": topic, "payload": f"message {number}"}, token=True)
    node.ask("mailbox", "POST", "/v1/recv", {"topic": "orders/eu", "max_messages": 4}, token=True)


def main() -> None:
    """Start a node and a browser, and write one picture."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, NodeProcess(data_dir=Path(home)) as node, Chromium() as browser:
        fill(node)
        tab = browser.tab(width=1200)
        tab.open(node.ready["dashboard"])
        tab.wait_text("orders/eu")
        shot = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        (PICTURES / "operator-page.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
