"""A node on a disk without a single free byte: it starts, says that it is degraded, and its queue can be drained."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path

from penstock.testing import wait_until
from tests.acceptance.node_process import NodeProcess
from tests.acceptance.test_failure_sentences import mounted

# Room for the log and its reserve, and not for many messages.
DISK = "size=96m"
SMALL, LARGE = ({"topic": "orders", "payload_b64": base64.b64encode(bytes(size)).decode()} for size in (100, 500_000))


def fill(here: Path) -> Path:
    """Take every byte that is left."""
    filler = here / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for size in (1 << 20, 4096, 1):
        try:
            while os.write(descriptor, bytes(size)) == size:
                pass
        except OSError:
            continue
    os.close(descriptor)
    assert os.statvfs(here).f_bavail == 0
    return filler


def drain(node: NodeProcess) -> int:
    """Take and settle until nothing is left."""
    taken = 0
    recv = {"topic": "orders", "max_messages": 50, "visibility_ms": 60_000, "wait_ms": 1000}
    while node.ask("mailbox", "GET", "/v1/topics", token=True).json()["topics"]:
        messages = node.ask("mailbox", "POST", "/v1/recv", recv, token=True).json()["messages"]
        acks = [{"msg_id": each["msg_id"], "receipt": each["receipt"]} for each in messages]
        results = node.ask("mailbox", "POST", "/v1/ack", {"acks": acks}, token=True).json()["results"]
        taken += sum(result.get("ok", False) for result in results)
    return taken


def send(node: NodeProcess, message: dict[str, str]) -> int:
    return node.ask("mailbox", "POST", "/v1/send", message, token=True).status


def test_node_starts_on_a_full_disk_and_its_queue_can_be_drained(tmp_path: Path) -> None:
    with mounted(tmp_path, DISK):
        data = tmp_path / "data"
        with NodeProcess(data_dir=data) as node:
            stored = sum(send(node, SMALL) == 200 for _ in range(10))
            fill(tmp_path)
            while send(node, LARGE) == 200:
                stored += 1
            node.signal(signal.SIGKILL)
            node.wait()
        fill(tmp_path)
        with NodeProcess(data_dir=data) as node:
            ready = node.ask("admin", "GET", "/readyz")
            assert (ready.status, "svc-mailbox" in ready.json()["degraded"]) == (200, True)
            assert node.ask("mailbox", "GET", "/readyz").json()["degraded"] == ["disk"]
            # One whose commit did not end may be there beside those that were answered.
            assert drain(node) in (stored, stored + 1)
            node.signal(signal.SIGTERM)
            assert node.wait()[0] == 0
        fill(tmp_path)
        with NodeProcess(data_dir=data) as node:
            (tmp_path / "filler").unlink()
            wait_until(lambda: send(node, SMALL) == 200)
            wait_until(lambda: node.ask("mailbox", "GET", "/readyz").json()["degraded"] == [])
