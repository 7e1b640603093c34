"""What the README shows in two minutes works as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.node_process import STOP_S, NodeProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PORTS = {"5300": "admin", "5303": "storage", "5305": "mailbox", "5306": "omnigate"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all, in a directory as the README has it."""
    with NodeProcess(data_dir=tmp_path_factory.mktemp("readme") / ".penstock") as running:
        yield running


def run(node: NodeProcess, *command: str) -> subprocess.CompletedProcess[str]:
    """Run something beside the node's data directory."""
    data_dir = Path(node.ready["data_dir"])
    (data_dir.parent / "README.md").write_text(README)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env.pop("PENSTOCK_TOKEN", None)
    return subprocess.run(
        command, cwd=data_dir.parent, env=env, capture_output=True, text=True, timeout=STOP_S, check=False
    )


def shell(node: NodeProcess, script: str) -> list[str]:
    """Run lines of shell against this node's ports; returns what each printed."""
    for port, service in PORTS.items():
        script = script.replace(f"localhost:{port}", f"localhost:{node.port(service)}")
    lines = "; echo; echo ---; ".join(line.partition("  #")[0] for line in script.strip().splitlines())
    done = run(node, "bash", "-c", lines)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("---\n")


def test_the_curl_lines_answer_as_they_say(node: NodeProcess) -> None:
    _, sent, leased, acked, stored, by_gateway, refused, depths = shell(node, SHELL[1])

    assert '"duplicate":false' in sent
    assert '"attempt":1' in leased
    assert '"ok":true' in acked
    assert '"b3:' in stored
    assert '"msg_id"' in by_gateway
    assert '"unauthenticated"' in refused
    assert "queue_depth{" in depths


def test_the_command_lines_work(node: NodeProcess) -> None:
    send, _, status = SHELL[2].strip().splitlines()
    # Following has no end of its own; taking what is there shows the same.
    sent, received, shown = shell(node, f"{send}\npenstock recv orders --ack\n{status}")

    assert sent
    assert "one more" in received or "pizzas" in received or "gateway" in received
    assert "svc-mailbox" in shown


@pytest.mark.parametrize(("block", "expected"), [(0, "soup"), (1, "BOUNDED, SUPERVISED, DRAINED")])
def test_the_python_blocks_run(node: NodeProcess, block: int, expected: str) -> None:
    done = run(node, sys.executable, "-c", PYTHON[block])

    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
