"""What the page of svc-passport shows works as it is written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.node_process import STOP_S, NodeProcess

PAGE = (Path(__file__).parents[3] / "docs" / "services" / "passport.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CONSOLE = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
COMMANDS = [line[2:].partition("#")[0] for line in CONSOLE.splitlines() if line.startswith("$ penstock")]
TOKEN = "psp1_hQFYj64AAQFn..."


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node in a directory as the page has it."""
    with NodeProcess(data_dir=tmp_path_factory.mktemp("page") / ".penstock") as running:
        yield running


def run(node: NodeProcess, *command: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    beside = Path(node.ready["data_dir"]).parent
    return subprocess.run(
        [sys.executable, *command], cwd=beside, env=env, capture_output=True, text=True, timeout=STOP_S, check=False
    )


def penstock(node: NodeProcess, line: str) -> str:
    done = run(node, "-m", "penstock.cli", *shlex.split(line)[1:])
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout.strip()


def commands(*begins: str) -> list[str]:
    return [line for line in COMMANDS if line.startswith(tuple(f"penstock {begin}" for begin in begins))]


def test_the_example_verifies_a_token_offline_and_refuses_one_that_does_not_reach(node: NodeProcess) -> None:
    token = penstock(node, commands("token issue")[0])
    good, bad = (run(node, "-c", EXAMPLE, text) for text in (token, token[:-4] + "AAAA"))

    assert good.stdout == "billing sub:billing ('op=recv,ack,nack', 'topic=orders/')\n", good.stderr
    assert "Unauthenticated" in bad.stderr


def test_every_line_for_a_shell_does_what_is_said_beside_it(node: NodeProcess) -> None:
    token = penstock(node, commands("token issue")[0])
    (narrow,) = commands("token attenuate")
    narrowed = penstock(node, narrow.replace(TOKEN, token))
    for line in commands("token inspect", "token verify"):
        assert "svc-mailbox" in penstock(node, line.replace(TOKEN, narrowed))
    assert penstock(node, commands("token issue")[1]).startswith("psp1_")

    says = json.loads(penstock(node, f"penstock token inspect {narrowed} --json"))
    penstock(node, "penstock token issue --for worker --topic a --tenant acme")
    for epoch, line in enumerate(commands("token revoke"), 1):
        named = line.replace("2f1c...", says["tid"]).replace("9a40...", says["rids"][-1])
        named = named.replace("--epoch 7", f"--epoch {epoch}")
        assert penstock(node, named).endswith(f"; the epoch is {epoch} now")
    assert "records, head" in penstock(node, commands("audit verify")[0])


def test_no_line_for_a_shell_is_left_out() -> None:
    # Two services by themselves: shown with real processes among the tests of the whole.
    known = commands("token issue", "token attenuate", "token inspect", "token verify", "token revoke", "audit verify")

    assert {line.split()[1] for line in set(COMMANDS) - set(known)} == {"serve"}
