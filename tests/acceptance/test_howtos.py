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


# --- rotate tokens


def rotating(node: NodeProcess, holding: str) -> str:
    """Return the block of the guide about tokens that holds a text, with this node's ports."""
    [block] = [block for block in blocks("rotate-tokens.md", "sh") if holding in block]
    for port, service in (("5300", "admin"), ("5307", "passport")):
        block = block.replace(f"127.0.0.1:{port}", f"127.0.0.1:{node.port(service)}")
    return f"set -e\n{block}"


def good(node: NodeProcess, file: str) -> bool:
    """Ask the node whether the token in a file is good for taking messages."""
    done = shell(node, f'penstock token verify "$(cat {file})" --aud svc-mailbox --op recv --topic texts --json')
    return '"ok": true' in done.stdout


def test_a_workers_token_is_replaced_and_only_the_old_one_revoked(node: NodeProcess) -> None:
    issue = "penstock token issue --for worker --subject counter --topic texts --store get"
    shell(node, f"{issue} > counter.token; cp counter.token old.token")

    done = shell(node, rotating(node, "issue --for worker"))

    assert done.returncode == 0, done.stderr
    assert (good(node, "counter.token"), good(node, "old.token")) == (True, False)


def test_one_narrowing_is_replaced_and_its_parent_stays_good(node: NodeProcess) -> None:
    issue = "penstock token issue --audience svc-mailbox --subject counter --caveat op=recv,send"
    shell(node, f'{issue} > parent.token; penstock token attenuate "$(cat parent.token)" --caveat op=recv > old.token')
    shell(node, "cp old.token shared.token")

    done = shell(node, rotating(node, "--rid"))

    assert done.returncode == 0, done.stderr
    assert (good(node, "parent.token"), good(node, "old.token")) == (True, False)
    assert "op=send" in shell(node, 'penstock token inspect "$(cat shared.token)"').stdout


def test_keys_and_everything_are_revoked_as_the_guide_says_and_the_command_line_keeps_working(
    node: NodeProcess,
) -> None:
    shell(node, "penstock token issue --for worker --subject counter --topic texts > counter.token")
    assert shell(node, rotating(node, "--subject-ref")).returncode == 0
    assert not good(node, "counter.token")
    assert shell(node, rotating(node, "token rotate")).returncode == 0

    [kid, *_] = re.findall(
        r'"kid":\s*"(\w+)"', shell(node, rotating(node, "--kid").splitlines()[1].partition(" #")[0]).stdout
    )
    assert shell(node, rotating(node, "--kid").replace("KID", kid)).returncode == 0

    shell(node, "penstock token issue --for worker --subject counter --topic texts > counter.token")
    assert good(node, "counter.token")
    assert shell(node, f"{rotating(node, 'revoke --all').rstrip()} --yes").returncode == 0
    assert not good(node, "counter.token")
    assert shell(node, "penstock send texts --data x").returncode == 0
