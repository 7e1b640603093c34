"""Every service answers as its `/openapi.json` says, to requests that fit it and to requests that do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
# A long poll and an endless stream have tests of their own; here each would only be waited for. The paths of the SQS
# face speak the protocol of others, and are tested by their clients.
LEFT_OUT = r"recv|stream$|^/sqs|^/queue|^/$|^/\{|^/\d{12}/"
# These end the operator's token: nothing asked after them would reach more than the check of it.
ENDING = r"/(rotate|revoke)$"
SERVICES = ("mailbox", "storage", "passport", "interop", "dht_http", "admin", "omnigate")
# As it is described: `admin.open_metrics` and `node.chaos` are decisions of an operator. One address asks here for
# everybody, so the gateway's quotas would be all that is seen.
SETTINGS = (
    "admin.open_metrics=false",
    "node.chaos=true",
    *(f"omnigate.quotas.{name}=1000000" for name in ("default_rps", "burst_rps", "per_ip_rps", "per_cap_rps")),
)
UNHEARD = "operations returned only 401/403", "operation returned only 401/403"


def start() -> NodeProcess:
    return NodeProcess(*(word for setting in SETTINGS for word in ("--set", setting)))


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with start() as running:
        yield running


def ask(node: NodeProcess, service: str, *which: str) -> str:
    """Let schemathesis ask a service; returns what it found wrong."""
    tool = Path(sys.executable).with_name("st")
    assert shutil.which(str(tool)), "schemathesis is in requirements-dev.lock"
    url = f"http://127.0.0.1:{node.port(service)}/openapi.json"
    bearer = f"Authorization: Bearer {node.ready['token']}"
    ran = subprocess.run(
        [
            tool, "--config-file", CONFIG, "run", url, "-H", bearer, "--checks", "all", "--phases", "coverage,fuzzing",
            *which, "--no-color",
        ],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = ran.stdout[-6000:] + ran.stderr[-1000:]
    return told if ran.returncode or any(words in ran.stdout for words in UNHEARD) else ""


@pytest.mark.parametrize("service", SERVICES)
def test_service_answers_as_it_says(node: NodeProcess, service: str) -> None:
    assert ask(node, service, "--exclude-path-regex", f"{LEFT_OUT}|{ENDING}") == ""


@pytest.mark.parametrize("service", ["passport", "omnigate"])
def test_operations_that_end_the_operators_token_answer_as_described(service: str) -> None:
    with start() as node:
        for name in ("rotate", "revoke"):
            assert ask(node, service, "--include-path", f"/v1/passport/{name}") == ""
