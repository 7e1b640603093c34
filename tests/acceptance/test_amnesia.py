"""A node in amnesia mode: by what the system sees, it opens no file for writing, and makes, moves and removes none."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import sync
from tests.acceptance.node_process import NodeProcess

# What changes a file system, but for opening; each is refused whatever it answers.
CHANGES = (
    "mkdir mkdirat mknod mknodat rename renameat renameat2 link linkat symlink symlinkat "
    "unlink unlinkat rmdir truncate creat"
)
OPENED = re.compile(r'\b(?:open|openat|openat2)\([^"]*"([^"]*)".*\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b')
CHANGED = re.compile(rf'\b(?:{CHANGES.replace(" ", "|")})\([^"]*"([^"]*)"')


def written(trace: str) -> list[str]:
    """Name what was opened for writing or changed; Python's own caches belong to the installed environment."""
    found = [
        match[1] for line in trace.splitlines() for match in [OPENED.search(line) or CHANGED.search(line)] if match
    ]
    return [path for path in found if "/__pycache__/" not in path and not path.startswith(("/dev/null", "/dev/tty"))]


def unmeasured() -> dict[str, str]:
    """Return the environment without coverage, which writes down what it saw of every process."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


@pytest.fixture
def traced(tmp_path: Path):
    """Have `python -m penstock.cli` run under strace; returns the environment for it and where the trace is written."""
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace=open,openat,openat2,{CHANGES.replace(' ', ',')}"]
    if (
        shutil.which("strace") is None
        or subprocess.run([*command, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("strace is not here, or may not trace")
    return command, trace


def work(node: NodeProcess) -> None:
    """Use every service as far as it would write if it could."""
    with sync.connect(ports=node.ready["ports"], token=node.ready["token"]) as client:
        for number in range(50):
            client.mailbox.send("t", os.urandom(20_000), key=str(number % 3))
        for message in client.mailbox.recv("t", max_messages=20):
            client.mailbox.ack(message)
        stored = client.storage.put(os.urandom(3 << 20))
        client.storage.get(stored.address)
        client.passport.issue("ada", "svc-mailbox", ttl_s=60)
        client.passport.revoke(subject_ref="ada", reason="forgotten")
        client.passport.rotate()
    node.ask("admin", "GET", "/status", token=True)


def test_amnesia_writes_no_file_whatever_it_is_asked_for(
    traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, trace = traced
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    env = {**unmeasured(), "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)}
    node = NodeProcess(env=env)
    node._command[:0] = command
    with node:
        assert node.ready["data_dir"] is None
        work(node)
        for number in (signal.SIGHUP, signal.SIGTERM):
            os.kill(_traced(node.process.pid), number)
        assert node.wait()[0] == 0

    assert written(trace.read_text()) == []
    assert list(home.iterdir()) == []


def _traced(tracer: int) -> int:
    """Find the one process that strace has started."""
    return int(Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split()[0])


def test_a_node_that_writes_is_caught(traced, tmp_path: Path) -> None:
    command, trace = traced
    script = f"import os; os.makedirs({str(tmp_path / 'made')!r}); open({str(tmp_path / 'file')!r}, 'w')"
    subprocess.run([*command, sys.executable, "-c", script], check=True, env=unmeasured())

    assert written(trace.read_text()) == [str(tmp_path / "made"), str(tmp_path / "file")]
