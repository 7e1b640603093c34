"""Every service answers as its `/openapi.json` says, to requests that fit it and to requests that do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess

CONFIG = Path(__file__).with_name("schemathesis.toml")
# A long poll and an endless stream have tests of their own; here each would only be waited for. The paths of the SQS
# face speak the protocol of others, and are tested by their clients.
LEFT_OUT = r"recv|^/sqs|^/queue|^/$|^/\{"
SERVICES = ("mailbox", "storage", "passport", "interop", "dht_http", "admin")


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    # As it is described: `admin.open_metrics` is an exception that an operator makes.
    with NodeProcess("--set", "admin.open_metrics=false") as running:
        yield running


@pytest.mark.parametrize("service", SERVICES)
def test_service_answers_as_it_says(node: NodeProcess, service: str) -> None:
    tool = Path(sys.executable).with_name("st")
    assert shutil.which(str(tool)), "schemathesis is in requirements-dev.lock"
    url = f"http://127.0.0.1:{node.port(service)}/openapi.json"
    bearer = f"Authorization: Bearer {node.ready['token']}"
    ran = subprocess.run(
        [
            tool, "--config-file", CONFIG, "run", url, "-H", bearer, "--checks", "all", "--phases", "coverage,fuzzing",
            "--exclude-path-regex", LEFT_OUT, "--no-color",
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-1000:]
