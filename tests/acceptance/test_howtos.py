"""Commands that the guides print work as they are printed, from a terminal that knows no secret."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.node_process import STOP_S, NodeProcess

HOWTO = Path(__file__).parents[2] / "docs" / "howto"


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a language that a page shows."""
    return re.findall(rf"```{language}\n(.*?)```", (HOWTO / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with the endpoint of the guide about webhooks; only the node knows its secret."""
    here = tmp_path_factory.mktemp("howto")
    (here / "penstock.toml").write_text(blocks("receive-github-webhooks.md", "toml")[0])
    env = {**os.environ, "GITHUB_SECRET": "fake-secret"}
    with NodeProcess("--config", str(here / "penstock.toml"), data_dir=here / ".penstock", env=env) as running:
        yield running


def shell(node: NodeProcess, script: str) -> subprocess.CompletedProcess[str]:
    """Run lines in another terminal, in the directory where the node was started."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    return subprocess.run(
        ["bash", "-c", script], cwd=Path(node.ready["data_dir"]).parent, env=env, capture_output=True, text=True,
        timeout=STOP_S, check=False,
    )  # fmt: skip


def test_a_webhook_is_tried_out_as_the_guide_says(node: NodeProcess) -> None:
    [tried] = [block for block in blocks("receive-github-webhooks.md", "sh") if "webhook sign" in block]
    done = shell(node, f"set -e\n{tried}")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('202 {"accepted":true')
    assert " accepted " in done.stdout
    assert "fake-secret" not in done.stdout + done.stderr


def test_the_python_of_the_webhook_guide_takes_the_event(node: NodeProcess) -> None:
    shell(node, 'echo \'{"zen": "once"}\' > again.json; penstock webhook sign github again.json --send')
    [program] = blocks("receive-github-webhooks.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(node.ready["data_dir"]).parent, capture_output=True, text=True,
        timeout=STOP_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "zen" in done.stdout


def test_the_cron_line_speaks_only_when_there_are_dead_letters(node: NodeProcess) -> None:
    [line] = [block for block in blocks("alert-on-dead-letters.md", "sh") if "grep" in block]
    shell(node, "penstock send fine --data x; penstock topic set poor max_attempts=1; penstock send poor --data x")
    before = shell(node, line).stdout
    shell(node, "penstock recv poor --json | penstock nack -")
    after = shell(node, line).stdout

    assert "dead letters wait" not in before
    assert '"topic": "poor"' in after
    assert '"topic": "fine"' not in after
    assert "dead letters wait" in after
