"""The programs in `examples/`, each run as it is, against a node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "reach-from-elsewhere.md").read_text()
MADE_SO = next(block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "openssl" in block)
ENDS = {"thumbnails.py": "done: cat, dog, fox, noise, owl\n"}


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.name)
def test_every_example_does_what_it_says(tmp_path: Path, program: Path) -> None:
    # Attempts follow each other at once: how long a message waits is not shown here.
    said = {"mailbox.backoff_base": "1ms", "mailbox.backoff_max": "2ms"}
    # The certificate is made by the lines that the page on TLS shows.
    subprocess.run(["bash", "-euc", MADE_SO], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    said |= {f"omnigate.tls.{name}_path": str(tmp_path / f"{name}.pem") for name in ("cert", "key")}
    settings = [word for name, value in said.items() for word in ("--set", f"{name}={value}")]
    with NodeProcess(*settings, data_dir=tmp_path / "node") as node:
        # As from another machine: by the gateway's URL, its certificate and a token alone.
        env = {**os.environ, "PENSTOCK_URL": f"https://localhost:{node.port('omnigate')}"}
        env |= {"PENSTOCK_CA": str(tmp_path / "ca.pem")}
        env |= {"PENSTOCK_TOKEN_FILE": str(tmp_path / "node" / "operator.token")}
        done = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=120, check=False, env=env
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(ENDS[program.name])
    assert "dead: ValueError: this is no PGM picture, after 5 attempts" in done.stdout
    assert "the handler of thumbnails/" in done.stderr, "and the failures were told"
