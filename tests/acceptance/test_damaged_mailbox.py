"""One flipped bit in the mailbox's log: the node runs, the mailbox says why it is not ready, and a repair mends it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.acceptance.node_process import NodeProcess, penstock

SENT = 30


def flip_a_bit(wal: Path) -> bytes:
    """Damage the middle of what was written."""
    data = bytearray(wal.read_bytes())
    used = max(place for place in range(0, len(data), 4096) if any(data[place : place + 4096]))
    data[used // 2] ^= 4
    wal.write_bytes(data)
    return bytes(data)


def test_damaged_log_shuts_the_mailbox_alone_and_a_repair_loses_nothing(tmp_path: Path) -> None:
    send = {"topic": "orders", "payload_b64": "aGVsbG8="}
    with NodeProcess(data_dir=tmp_path) as node:
        for _ in range(SENT):
            assert node.ask("mailbox", "POST", "/v1/send", send, token=True).status == 200
        node.signal(signal.SIGKILL)
        node.wait()
    wal = tmp_path / "mailbox" / "mailbox.db-wal"
    damaged = flip_a_bit(wal)
    with NodeProcess(data_dir=tmp_path) as node:
        assert node.ready["missing"] == ["svc-mailbox/engine"]
        ready = node.ask("mailbox", "GET", "/readyz")
        assert (ready.status, ready.json()["missing"]) == (503, ["engine"])
        assert node.ask("mailbox", "GET", "/healthz").status == 200
        assert node.ask("passport", "GET", "/readyz").status == 200
        refused = node.ask("mailbox", "POST", "/v1/send", send, token=True)
        assert (refused.status, refused.json()["code"]) == (503, "not_ready")
        assert "write-ahead log is damaged" in refused.json()["detail"]
        assert node.metric('integrity_fail_total{reason="wal",service="svc-mailbox"}') == 1
        in_use = penstock("mailbox", "repair", "--data-dir", str(tmp_path))
        assert (in_use.returncode, "another node" in in_use.stderr) == (1, True)
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
    assert wal.read_bytes() == damaged

    assert penstock("mailbox", "check", "--data-dir", str(tmp_path)).returncode == 1
    report = json.loads(penstock("mailbox", "repair", "--data-dir", str(tmp_path), "--json").stdout)
    assert (report["messages"], report["lost"]) == (SENT, [])
    with NodeProcess(data_dir=tmp_path) as node:
        assert node.ask("mailbox", "GET", "/readyz").status == 200
        assert node.ask("mailbox", "GET", "/v1/topics/orders", token=True).json()["ready"] == SENT
