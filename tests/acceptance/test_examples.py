"""The programs in `examples/`, each run as it is, against a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
ENDS = {"thumbnails.py": "done: cat, dog, noise\n"}


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.name)
def test_every_example_does_what_it_says(tmp_path: Path, program: Path) -> None:
    # Attempts follow each other at once: how long a message waits is not shown here.
    with NodeProcess(
        "--set", "mailbox.backoff_base=1ms", "--set", "mailbox.backoff_max=2ms", data_dir=tmp_path
    ) as node:
        env = {**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"]}
        done = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=120, check=False, env=env
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(ENDS[program.name])
    assert "dead: ValueError: this is no PGM picture, after 5 attempts" in done.stdout
    assert "the handler of thumbnails/" in done.stderr, "and the failures were told"
