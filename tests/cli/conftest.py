"""What the tests of the command line share: commands in this process, and a node whose gateway has a certificate."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli import main
from tests.acceptance.node_process import NodeProcess
from tests.net.server.certificates import make_certificate


@pytest.fixture
def cli(node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process; returns exit code, standard output and standard error."""

    def run(*words: str, data_dir: str | None = None) -> tuple[int, str, str]:
        code = main([*words, "--data-dir", data_dir or node.ready["data_dir"]])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def rows(out: str) -> list[dict]:
    """Read what a command printed with `--json`."""
    return [json.loads(line) for line in out.splitlines()]


def dead(cli, topic: str, reasons: list[str]) -> list[str]:
    """Make a dead letter for each reason; returns their ids."""
    cli("topic", "set", topic, "max_attempts=1")
    made = []
    for reason in reasons:
        made.append(cli("send", topic, "--data", reason)[1].strip())
        [got] = rows(cli("recv", topic, "--json", "--wait", "20s")[1])
        cli("nack", got["msg_id"], got["receipt"], "--reason", reason)
    return made


@dataclass(frozen=True)
class SecureNode:
    """A node that is asked by the URL of its gateway, over TLS."""

    node: NodeProcess
    folder: Path
    ca: Path
    token: Path

    @property
    def url(self) -> str:
        """Return the gateway's URL, by the name that is in its certificate."""
        return f"https://localhost:{self.node.port('omnigate')}"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options that lead a command there."""
        return ("--url", self.url, "--ca", str(self.ca), "--token-file", str(self.token))


def outside(**more: str) -> dict[str, str]:
    """Return the environment without what leads to a node, so that only what a test says counts."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}, **more}


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node with a data directory, TLS at its gateway, a webhook endpoint, and the operator's token in a file."""
    folder = tmp_path_factory.mktemp("secure")
    made = make_certificate(folder)
    settings = folder / "penstock.toml"
    settings.write_text(
        f"""[omnigate.tls]
cert_path = "{made["tls_cert_path"]}"
key_path = "{made["tls_key_path"]}"
[interop.providers.github]
secrets = ["env:HOOK_SECRET"]
topic = "hooks"
"""
    )
    env = {**os.environ, "HOOK_SECRET": "fake-secret"}
    with NodeProcess("--config", str(settings), data_dir=folder / "data", env=env) as node:
        token = folder / "operator"
        token.touch(mode=0o600)
        token.write_text(node.ready["token"])
        yield SecureNode(node, folder, made["tls_cert_path"], token)
