"""Clients that are slow on purpose, by slowhttptest: the node serves others meanwhile, and lets each of them go."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess, ask

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("slowhttptest") is None, reason="no slowhttptest here (a package of Debian)"),
]
# For each listener something that only a holder of the token gets, and a POST that is as open as it can be.
PATHS = {
    "mailbox": ("/v1/topics", "/v1/send"),
    "storage": ("/healthz", "/v1/uploads"),
    "passport": ("/v1/keys", "/v1/passport/verify"),
    "interop": ("/v1/webhooks", "/webhooks/nobody"),
    "dht_http": ("/v1/dht/status", "/v1/dht/ping"),
    "admin": ("/status", "/login"),
    "omnigate": ("/v1/topics", "/v1/passport/verify"),
}
TABLES = ("http", "mailbox", "storage", "passport", "interop", "dht", "admin", "omnigate")
IDLE = "6s"
# Fewer than one address may hold: what is tested is how long they stay, not how many get in.
EACH = 100
# They would stay for this long. Every deadline that ends them is 5 or 6 s; a busy machine may take longer to see it.
STAY_S = 45
MODES = {
    "slow headers": ("-H", "-i", "2"),
    "slow body": ("-B", "-i", "2", "-s", "8192", "-f", "application/json"),
    "slow read": ("-X", "-k", "8", "-w", "10", "-y", "20", "-n", "1", "-z", "32"),
}


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    idle = (word for table in TABLES for word in ("--set", f"{table}.idle_timeout={IDLE}"))
    with NodeProcess(*idle) as running:
        yield running


def descriptors(node: NodeProcess) -> int:
    return sum(1 for _ in Path(f"/proc/{node.process.pid}/fd").iterdir())


def attack(node: NodeProcess, mode: str, service: str) -> list[str]:
    path = {"slow headers": "/healthz", "slow body": PATHS[service][1], "slow read": "/openapi.json"}[mode]
    size = ("-c", str(EACH), "-r", str(EACH), "-l", str(STAY_S), "-p", "20", "-v", "0")
    return ["slowhttptest", *MODES[mode], *size, "-u", f"http://127.0.0.1:{node.port(service)}{path}"]


def served(node: NodeProcess, service: str) -> int:
    """Ask as somebody else, from another address of this machine."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", node.port(service), timeout=30.0, source_address=("127.0.0.2", 0)
    )
    try:
        return ask(connection, "GET", PATHS[service][0], None, node.ready["token"]).status
    finally:
        connection.close()


@pytest.mark.parametrize("mode", MODES)
def test_slow_clients_delay_nobody_and_are_let_go_at_their_deadline(node: NodeProcess, mode: str) -> None:
    before, highest, answers = descriptors(node), 0, []
    with ExitStack() as ending:
        attackers = [
            ending.enter_context(subprocess.Popen(attack(node, mode, service), stdout=subprocess.DEVNULL))
            for service in PATHS
        ]
        ending.callback(lambda: [each.kill() for each in attackers])
        until, gone = time.monotonic() + STAY_S - 10, False
        while not gone and time.monotonic() < until:
            answers += [served(node, service) for service in PATHS]
            now = descriptors(node)
            highest = max(highest, now)
            # A refusal before the body may be over before it is seen here; then all of them have come and gone.
            gone = now <= before + 8 and (highest > before + EACH or any(each.poll() is not None for each in attackers))

        assert gone, f"{descriptors(node) - before} connections are still open"
    assert set(answers) == {200}, answers
    print(f"{mode}: at most {highest - before} connections, {len(answers)} answers to others")  # noqa: T201 - a figure
