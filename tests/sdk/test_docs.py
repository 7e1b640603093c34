"""The examples of the SDK's page, each run as the program it is."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess

PAGE = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(example: str, node: NodeProcess) -> tuple[int, list[str]]:
    """Run it as a program; returns its exit code and what it complained of."""
    env = {**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"]}
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    # A machine that stands still for a moment makes a renewal late, which is told and tried again; two examples reject
    # a message on purpose.
    rejected = "rejected message .*: (too hot; it comes again|no JSON; it is a dead letter now)"
    expected = re.compile(f"penstock: .*( not renewed: |stood still|{rejected})")
    return done.returncode, [line for line in done.stderr.splitlines() if not expected.match(line)]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_works(node: NodeProcess, example: str) -> None:
    assert run(example, node) == (0, [])


def test_there_are_examples_of_every_client() -> None:
    text = "\n".join(EXAMPLES)

    assert len(EXAMPLES) >= 5
    assert [word in text for word in (".mailbox.", ".passport.", ".storage.", "sync.connect")] == [True] * 4


def test_the_page_names_every_public_name() -> None:
    missing = [name for name in importlib.import_module("penstock.client").__all__ if f"`{name}" not in PAGE]

    assert missing == []
