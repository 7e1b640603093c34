"""A node with a GitHub endpoint, and Debian's webhook with the same one; each on a core of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks._omnigate.running import ROOT, TICKS, free_port, on_core, wait_until_up

SECRET = "fake-benchmark-secret"
_SETTINGS = (
    "interop.max_rps=0",
    "interop.max_conns_per_ip=0",
    "mailbox.backlog_messages_max=4000000",
    "mailbox.backlog_bytes_max=16GiB",
    "mailbox.dedup_entries=4000000",
)


class Running(NamedTuple):
    """A server that runs: how it is asked, and which process it is."""

    name: str
    pid: int
    port: int
    path: str
    token: str = ""

    def cpu_s(self) -> float:
        """Return user and system seconds so far, with those of the children that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS

    def rss_mib(self, name: str = "VmRSS") -> float:
        """Return the memory it holds, or held at most (`VmHWM`)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


@contextmanager
def node(directory: Path, *settings: str) -> Iterator[Running]:
    """Run a whole node; its mailbox writes each event to the disk before it is answered."""
    chosen = [word for each in (*_SETTINGS, *settings) for word in ("--set", each)]
    command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--ephemeral-ports", "--data-dir", str(directory)]
    command += ["--set", "interop.providers.github.secrets=env:BENCH_SECRET", *chosen]
    with on_core(0):
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            env={**os.environ, "BENCH_SECRET": SECRET},
        )  # fmt: skip
    assert running.stdout is not None
    line = running.stdout.readline()
    if '"ports"' not in line:
        raise SystemExit(f"the node did not start: {line}")
    ready = json.loads(line)
    try:
        yield Running("penstock", running.pid, ready["ports"]["interop"], "/webhooks/github", ready["token"])
    finally:
        running.terminate()
        running.wait(30)


def installed() -> bool:
    """Tell whether Debian's webhook is there."""
    return shutil.which("webhook") is not None


@contextmanager
def peer(directory: Path) -> Iterator[Running]:
    """Run Debian's webhook with the same secret; what it starts for each one is /bin/true."""
    rule = {
        "match": {
            "type": "payload-hmac-sha256",
            "secret": SECRET,
            "parameter": {"source": "header", "name": "X-Hub-Signature-256"},
        }
    }
    hooks = directory / "hooks.json"
    hooks.write_text(json.dumps([{"id": "github", "execute-command": "/bin/true", "trigger-rule": rule}]))
    port = free_port()
    command = ["webhook", "-hooks", str(hooks), "-ip", "127.0.0.1", "-port", str(port)]
    with on_core(0):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_up(port)
        yield Running("webhook 2.8", running.pid, port, "/hooks/github")
    finally:
        # It may hang: it has nothing to lose.
        running.kill()
        running.wait(10)
