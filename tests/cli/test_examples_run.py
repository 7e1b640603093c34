"""Every example of a help text and of the page about the command line is run against a real node.

Each runs twice: beside the node, and, where its command takes a URL, by the URL of a gateway with TLS.
"""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import parser_of
from penstock.cli.help_examples import EXAMPLES
from penstock.cli.help_page import EXAMPLES as PAGE_EXAMPLES
from tests.acceptance.node_process import START_S, NodeProcess, penstock
from tests.cli.conftest import SecureNode, outside

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
_SHOWN = re.compile(r"^(?:source <\()?(penstock [^#|)&\n]*)", re.MULTILINE)
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)

# What does not run here, and why.
LEFT_OUT = {
    "penstock bench mailbox": "it measures for minutes, against other programs",
    "penstock tour": "tests/cli/test_tour.py runs it",
    "penstock tour --self": "tests/cli/test_tour.py runs it",
    "penstock webhook listen github --forward http://127.0.0.1:8000/hook": "tests/acceptance/test_webhooks.py runs it",
    "penstock weave app.py::transfer --schedule any.3-1.5e1c": "the schedule is of a program that the reader has",
}
# These go on until they are told to end.
GO_ON = ("up", "serve", "recv orders --follow")
# These need the node to be down.
OFFLINE = ("mailbox", "storage")
# These end the node, and have one of their own.
ENDING = ("stop",)
FOUND = sorted(
    {line for lines in EXAMPLES.values() for line in lines}
    | {line for line, _ in PAGE_EXAMPLES}
    | {line.strip() for block in _BLOCK.findall(PAGE.read_text()) for line in _SHOWN.findall(block)}
)
RUN = [line for line in FOUND if line not in LEFT_OUT]
PROGRAM = """
import asyncio


async def transfer() -> None:
    await asyncio.sleep(0)
"""


def takes_url(line: str) -> bool:
    """Tell whether an example's command takes a URL and the example names no place yet."""
    words = shlex.split(line)[1:]
    parser: argparse.ArgumentParser = parser_of({words[0]})
    for word in words:
        sub = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
        if sub is None or word not in sub.choices:
            break
        parser = sub.choices[word]
    named = {"--url", "--data-dir", "--running"} & set(words)
    # Of these the URL is of something else, or the files are this machine's.
    other = words[0] in ("context", "open") or words[:2] in (["webhook", "sign"], ["config", "show"])
    return "--url" in parser._option_string_actions and not named and not other


class Desk:
    """A folder with the files that the examples name, and what stands for their placeholders."""

    def __init__(self, folder: Path, secure: SecureNode) -> None:
        self.folder = folder
        self.secure = secure
        self.node = secure.node
        for name in ("photo.jpg", "order.json"):
            (folder / name).write_text("{}")
        (folder / "app.py").write_text(PROGRAM)
        for name in ("penstock.toml", "gateway.toml"):
            (folder / name).write_text("[node]\ndrain_deadline = '5s'\n")
        for name in ("cert.pem", "key.pem"):
            (folder / name).write_bytes((secure.folder / name).read_bytes())
            (folder / name).chmod(0o600)
        for name in ("ca.pem", "prod-ca.pem"):
            (folder / name).write_bytes(secure.ca.read_bytes())
        for name in ("t", "prod.token", "worker.token"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(self.node.ready["token"])

    def env(self, **more: str) -> dict[str, str]:
        """Return an environment in which nothing of this machine counts."""
        return outside(
            HOME=str(self.folder), XDG_CONFIG_HOME=str(self.folder / "config"), BROWSER="true", HOOK_SECRET="x", **more
        )

    def words(self, line: str) -> list[str]:
        """Put what is here into the place of what stands in an example for it."""
        line = line.replace("https://queue.example.org:5306", self.secure.url).replace("~", str(self.folder))
        line = line.replace("/var/lib/penstock", str(self.folder / "other"))
        if "TOKEN" in line.split():
            token = self._issued() if "attenuate" in line else self.node.ready["token"]
            line = line.replace("TOKEN", token)
        if "MSG_ID" in line:
            line = line.replace("MSG_ID RECEIPT", self._leased())
        if "b3:9f86d0..." in line:
            line = line.replace("b3:9f86d0...", self._stored())
        return shlex.split(line)[1:]

    def _issued(self) -> str:
        where = ("--data-dir", self.node.ready["data_dir"])
        issue = ("token", "issue", "--for", "worker", "--subject", "resizer", "--topic", "images/")
        return penstock(*issue, *where, env=self.env()).stdout.strip()

    def _leased(self) -> str:
        # A topic of its own, so that no other example has taken the message.
        self.node.ask("mailbox", "POST", "/v1/send/leased", {"payload": "x"}, token=True)
        [got] = self.node.ask("mailbox", "POST", "/v1/recv", {"topic": "leased"}, token=True).json()["messages"]
        return f"{got['msg_id']} {got['receipt']}"

    def _stored(self) -> str:
        where = ("--data-dir", self.node.ready["data_dir"])
        return penstock("put", str(self.folder / "photo.jpg"), *where, env=self.env()).stdout.strip()

    def prepare(self) -> None:
        """Have a message wait, and a dead letter lie there."""
        ask = self.node.ask
        ask("mailbox", "PUT", "/v1/topics/orders/settings", {"max_attempts": 1}, token=True)
        ask("mailbox", "POST", "/v1/send/orders", {"payload": "x"}, token=True)
        for got in ask("mailbox", "POST", "/v1/recv", {"topic": "orders"}, token=True).json()["messages"]:
            given = {name: got[name] for name in ("msg_id", "receipt")}
            ask("mailbox", "POST", "/v1/nack", {**given, "reason": "ValueError"}, token=True)
        ask("mailbox", "POST", "/v1/send/orders", {"payload": "y"}, token=True)

    def prepare_for(self, line: str) -> None:
        """Make what an example takes away."""
        if line.startswith("penstock route remove"):
            new = {"prefix": "/shop", "upstream": ["http://127.0.0.1:9"]}
            self.node.ask("admin", "POST", "/v1/node/routes", new, token=True)
        if line.startswith("penstock context remove"):
            penstock("context", "add", "prod", *self.secure.options, env=self.env())


@pytest.fixture
def desk(tmp_path: Path, secure: SecureNode) -> Iterator[Desk]:
    """A desk of this test, and no route of it left behind on the node."""
    made = Desk(tmp_path, secure)
    made.prepare()
    yield made
    for prefix in ("/shop", "/api"):
        secure.node.ask("admin", "DELETE", f"/v1/node/routes?prefix={prefix}", token=True)


def run(desk: Desk, words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=START_S, check=False, env=desk.env(**env), cwd=desk.folder,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def run_until_told(desk: Desk, words: list[str], **env: str) -> tuple[int, str]:
    """Start what goes on, wait for its first words, and end it as a service manager would."""
    command = [sys.executable, "-m", "penstock.cli", *words]
    with (
        (desk.folder / "said").open("w+b") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=desk.env(**env), cwd=desk.folder) as process,
    ):
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=START_S)
        return process.returncode, first.decode() + (desk.folder / "said").read_text()


@pytest.mark.parametrize("line", RUN)
def test_an_example_works_beside_a_node(desk: Desk, line: str) -> None:
    words, here = desk.words(line), desk.node.ready["data_dir"]
    action = line.removeprefix("penstock ")
    if action.startswith(("up", "serve")):
        own = {"PENSTOCK_DATA_DIR": str(desk.folder / "own"), "PENSTOCK_NODE__EPHEMERAL_PORTS": "true"}
        if action.startswith("serve omnigate"):
            own["PENSTOCK_DATA_DIR"] = _with_passport(desk)
        code, said = run_until_told(desk, words, **own)
    elif action.startswith(GO_ON):
        code, said = run_until_told(desk, words, PENSTOCK_DATA_DIR=here)
    elif action.startswith((*OFFLINE, *ENDING)):
        where = desk.folder / ("other" if "--data-dir" in words else "own")
        with NodeProcess(data_dir=where, env=desk.env()) as node:
            if action.startswith(OFFLINE):
                node.signal(signal.SIGTERM)
                node.wait()
            done = run(desk, words, PENSTOCK_DATA_DIR=str(where))
        code, said = done.returncode, done.stderr
    else:
        # The certificate of the example's host is by an authority that every machine knows.
        env = {"PENSTOCK_CA": str(desk.secure.ca)} if "--url" in words else {"PENSTOCK_DATA_DIR": here}
        desk.prepare_for(line)
        done = run(desk, words, **env)
        code, said = done.returncode, done.stderr

    assert code == 0, said


def _with_passport(desk: Desk) -> str:
    """Return a data directory in which a gateway alone finds keys: that of the shared node cannot be used twice."""
    where = desk.folder / "own"
    with NodeProcess(data_dir=where, env=desk.env()):
        pass
    return str(where)


@pytest.mark.parametrize("line", [line for line in RUN if takes_url(line)])
def test_an_example_works_by_the_url_of_a_gateway(desk: Desk, line: str) -> None:
    desk.prepare_for(line)
    words = [*desk.words(line), *desk.secure.options]
    if line.endswith("--token-file worker.token"):
        words = [*desk.words(line), *desk.secure.options[:4]]
    if line.removeprefix("penstock ").startswith(GO_ON):
        code, said = run_until_told(desk, words)
    else:
        done = run(desk, words)
        code, said = done.returncode, done.stderr

    assert code == 0, said


def test_what_is_left_out_is_there() -> None:
    assert LEFT_OUT.keys() <= set(FOUND)
    assert len(RUN) > 60
    assert len([line for line in RUN if takes_url(line)]) > 30
