"""Webhooks as people meet them: the how-to page, the gateway, the SDK, the command line, a program behind `listen`."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.client import sync
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Forbidden, NotFound, Unauthenticated
from tests.acceptance.gateway_kit import ask, issue
from tests.acceptance.node_process import NodeProcess, free_port, penstock
from tests.services.interop.senders import SENDERS, Sent

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "interop.md").read_text()
HOW_TO = PAGE.partition("## Receive GitHub webhooks")[2].partition("\n## ")[0]
TOPIC = "webhooks/github"
SECRET = SENDERS["github"].secret
ENV = {**os.environ, "GITHUB_SECRET": SECRET}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all, configured as the page says."""
    directory = tmp_path_factory.mktemp("node")
    (directory / "penstock.toml").write_text(re.search(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)[1])
    (directory / "body.json").write_text('{"zen":"Keep it logically awesome."}')
    arguments = ("--config", str(directory / "penstock.toml"), "--set", "omnigate.quotas.per_ip_rps=0")
    with NodeProcess(*arguments, data_dir=directory / "data", env=ENV) as running:
        running.folder = directory  # type: ignore[attr-defined]
        yield running


def live(body: bytes, **more) -> Sent:
    return SENDERS["github"].send(body, now=int(SYSTEM.wall()), **more)


def gateway(node: NodeProcess, sent: Sent, **fields: str):
    """Send a webhook through the gateway, without a token."""
    headers = {name.decode().replace("-", "_"): value.decode() for name, value in sent.fields}
    return ask(node, "POST", "/webhooks/github", sent.body, token="", **{**headers, **fields})


def run(node: NodeProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return penstock(*words, "--data-dir", node.ready["data_dir"], env=ENV)


def test_every_command_of_the_how_to_works(node: NodeProcess) -> None:
    commands = re.findall(r"^    (penstock .*)$", HOW_TO, re.MULTILINE)
    told, names = {}, {"18bd5f4a2c1-0": "none"}
    for command in commands:
        words = shlex.split(command)[1:]
        if words[:2] == ["webhook", "listen"]:
            continue
        words = [str(node.folder / word) if word == "body.json" else word for word in words]
        words += ["--data-dir", node.ready["data_dir"]]
        done = penstock(*(names.get(word, word) for word in words), env=ENV)
        assert done.returncode == 0, (command, done.stderr)
        told[" ".join(words[:2])] = done.stdout
        found = re.search(r"\b([0-9a-f]+-\d+)\b.*accepted", done.stdout)
        names["18bd5f4a2c1-0"] = found[1] if found else names["18bd5f4a2c1-0"]

    assert set(told) == {"webhook sign", "recv webhooks/github", "webhook list", "webhook show"}
    assert told["webhook sign"].startswith('202 {"accepted":true')
    assert "logically awesome" in told["recv webhooks/github"]
    assert "accepted" in told["webhook list"]
    assert "logically awesome" in told["webhook show"]


def test_program_of_the_how_to_takes_an_event(node: NodeProcess) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "receive-github-webhooks.md").read_text()
    toml, program = (
        re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1],
        re.search(r"```python\n(.*?)```", page, re.DOTALL)[1],
    )
    assert gateway(node, live(b'{"how":"to"}')).status == 202
    env = {**ENV, "PENSTOCK_DATA_DIR": node.ready["data_dir"]}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, env=env
    )

    # Both pages show the same configuration, which is this node's.
    assert f"```toml\n{toml}```" in HOW_TO
    assert (done.returncode, done.stdout) == (0, "push {'how': 'to'}\n"), done.stderr


def test_webhook_through_the_gateway_needs_its_signature_and_no_token(node: NodeProcess) -> None:
    good = gateway(node, live(b'{"n":1}'))
    # What a provider puts into Authorization is not a token of ours, and no reason to refuse its webhook.
    again = gateway(node, live(b'{"n":1}'), Authorization="Basic ZmFrZTpmYWtl")
    bad = gateway(node, live(b'{"n":2}', secret="wrong-fake"))
    nobody = ask(node, "POST", "/webhooks/nobody", b"{}", token="")
    senseless = ask(node, "POST", "/webhooks/No%20Body", b"{}", token="")

    assert again.status == 202, again.body
    assert (good.status, again.status, again.json()["duplicate"]) == (202, 202, True)
    assert again.json()["msg_id"] == good.json()["msg_id"]
    assert (bad.status, bad.json()["code"]) == (401, "unauthenticated")
    assert (nobody.status, senseless.status) == (404, 400)


def test_puts_and_reads_go_through_the_gateway_with_a_token_for_the_bridge(node: NodeProcess) -> None:
    token = issue(node, "op=put,get", audience="svc-interop")
    octets = {"Content_Type": "application/octet-stream"}
    put = ask(node, "POST", "/put", b"some bytes", token=token, **octets)
    address = put.json()["address"]
    as_json = ask(node, "POST", "/put", b'{"payload":"c29tZSBieXRlcw=="}', token=token, Content_Type="application/json")
    read = ask(node, "GET", f"/o/{address}", token=token)
    part = ask(node, "GET", f"/o/{address}", token=token, Range="bytes=5-9")
    wrong = [
        ask(node, "POST", "/put", b"x", token="", **octets),
        ask(node, "POST", "/put", b"x", token=issue(node, "op=get", audience="svc-interop"), **octets),
        ask(node, "POST", "/put", b"x", token=token, Content_Type="text/plain"),
        ask(node, "POST", "/put", b"x", token=token, X_Expect_Addr=address, **octets),
        ask(node, "POST", "/put", bytes((1 << 20) + 1), token=token, **octets),
        ask(node, "GET", "/o/b3:none", token=token),
        ask(node, "GET", "/v1/webhooks", token=token),
    ]

    assert (put.status, as_json.status, as_json.json()["address"]) == (202, 202, address)
    assert (read.body, part.status, part.body) == (b"some bytes", 206, b"bytes")
    assert [each.status for each in wrong] == [401, 403, 415, 409, 413, 400, 403]


def test_inbox_is_the_same_through_the_gateway_the_sdk_and_the_command_line(node: NodeProcess) -> None:
    gateway(node, live(b'{"n":3}'))
    with sync.connect(node.ready["data_dir"]) as client:
        (newest,) = client.interop.deliveries("github", outcome="accepted", limit=1)
        opened = client.interop.delivery(newest.id)
        replayed = client.interop.replay(newest.id)
        again = client.interop.replay(newest.id)
        (endpoint,) = client.interop.endpoints()
        with pytest.raises(NotFound):
            client.interop.pause("nobody")
        address = client.interop.put(b"by the sdk")
        assert client.interop.get(address) == b"by the sdk"
    shown = ask(node, "GET", f"/v1/webhooks/deliveries/{newest.id}").json()
    listed = json.loads(run(node, "webhook", "list", "--json").stdout)
    told = run(node, "webhook", "replay", newest.id)

    assert (opened.event["body"], opened.delivery.msg_id) == ('{"n":3}', newest.msg_id)
    assert shown["delivery"]["msg_id"] == newest.msg_id
    assert len({newest.msg_id, replayed.msg_id, again.msg_id}) == 3
    assert endpoint.topic == "webhooks/github"
    assert newest.id in [each["id"] for each in listed["deliveries"]]
    assert "in webhooks/github" in told.stdout


def test_tokens_without_admin_see_nothing_of_the_inbox(node: NodeProcess) -> None:
    token = issue(node, "op=put,get,send,recv", audience="svc-interop")
    for held, refusal in ((token, Forbidden), ("psp1_fake", Unauthenticated)):
        with sync.connect(node.ready["data_dir"], token=held) as client, pytest.raises(refusal):
            client.interop.endpoints()


def test_endpoint_is_paused_and_the_gateway_stays_well(node: NodeProcess) -> None:
    paused = run(node, "webhook", "pause", "github")
    answers = [gateway(node, live(b"{}")) for _ in range(30)]
    ready = ask(node, "GET", "/readyz", token="")
    resumed = run(node, "webhook", "resume", "github")
    after = gateway(node, live(b'{"n":4}'))

    assert (paused.returncode, resumed.returncode) == (0, 0)
    # So many refusals of one endpoint do not make the gateway give up on the bridge.
    assert {(each.status, each.json()["phase"]) for each in answers} == {(503, "paused")}
    assert (ready.status, after.status) == (200, 202)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "none"), 1, "There is no such delivery"),
        (("replay", "none"), 1, "There is no such delivery"),
        (("list", "nobody"), 1, "There is no endpoint 'nobody'"),
        (("pause", "nobody"), 1, "There is no such endpoint"),
        (("listen", "nobody", "--forward", "http://127.0.0.1:1"), 1, "There is no endpoint 'nobody'"),
        (("list", "--max", "0"), 2, "a whole number from 1 on"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(node: NodeProcess, words, code: int, told: str) -> None:
    done = run(node, "webhook", *words)

    assert (done.returncode, told in done.stderr, done.stderr.count("\n")) == (code, True, 1), done.stderr


# --- listen


class Program(http.server.BaseHTTPRequestHandler):
    """A program that takes webhooks; what it refuses it is asked again."""

    got: ClassVar[list[tuple[dict[str, str], bytes]]] = []
    refuses = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = 200
        if Program.refuses:
            Program.refuses -= 1
            status = 500
        Program.got.append((dict(self.headers.items()), body))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_said: object) -> None:
        """Say nothing."""


@contextmanager
def program(port: int) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Program) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_listen_holds_events_while_the_program_is_off_and_passes_each_on(node: NodeProcess) -> None:
    port = free_port()
    run(node, "recv", "webhooks/github", "--max", "256", "--ack")
    forward = ("--forward", f"http://127.0.0.1:{port}/hooks", "--data-dir", node.ready["data_dir"], "--json")
    listening = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "webhook", "listen", "github", *forward],
        stdout=subprocess.PIPE, text=True, env=ENV,
    )  # fmt: skip
    try:
        assert gateway(node, live(b'{"n":"held"}')).status == 202
        lines = iter(listening.stdout.readline, "")
        # Nobody is there: it is told, and the message is held, not given back.
        away = [json.loads(next(lines)) for _ in range(2)]
        Program.refuses = 1
        with program(port):
            told, given_back = [0], []
            while told[-1] != 200:
                line = json.loads(next(lines))
                told += [line["status"]] if "status" in line else []
                given_back += [line["given_back"]] if "given_back" in line else []
    finally:
        listening.terminate()
        listening.communicate(timeout=60)
    rows = [json.loads(line) for line in run(node, "topics", "--json").stdout.splitlines()]
    left = [(row["ready"], row["inflight"], row["delayed"], row["dlq"]) for row in rows if row["topic"] == TOPIC]

    assert [each["status"] for each in away] == [0, 0]
    assert [status for status in told if status] == [500, 200]
    assert [(each["attempt"], each["dead_lettered"]) for each in given_back] == [(1, False)]
    headers, body = Program.got[-1]
    assert (body, headers["x-github-event"]) == (b'{"n":"held"}', "push")
    # The answer 500 cost an attempt; the time without the program cost none.
    assert headers["x-penstock-attempt"] == "2"
    assert {"x-penstock-msg-id"} <= {name.lower() for name in headers}
    assert "x-hub-signature-256" not in {name.lower() for name in headers}
    assert listening.returncode == 0
    # The topic has settings of its own, and so it is listed; nothing is in it.
    assert left == [(0, 0, 0, 0)]


def test_listen_says_when_an_event_has_become_a_dead_letter(node: NodeProcess) -> None:
    port = free_port()
    run(node, "recv", "webhooks/github", "--max", "256", "--ack")
    run(node, "topic", "set", TOPIC, "max_attempts=2")
    forward = ("--forward", f"http://127.0.0.1:{port}/hooks", "--data-dir", node.ready["data_dir"])
    listening = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "webhook", "listen", "github", *forward],
        stdout=subprocess.PIPE, text=True, env=ENV,
    )  # fmt: skip
    try:
        Program.refuses = 2
        with program(port):
            assert gateway(node, live(b'{"n":"poison"}')).status == 202
            told = [next(iter(listening.stdout.readline, "")) for _ in range(4)]
    finally:
        listening.terminate()
        listening.communicate(timeout=60)
        run(node, "topic", "unset", TOPIC, "max_attempts")

    assert [told[n].endswith(": 500\n") for n in (0, 2)] == [True, True]
    assert told[1].startswith("  given back after attempt 1; it comes again in ")
    assert told[3].startswith(
        "  attempt 2 was the last: it is a dead letter now; penstock dlq redrive webhooks/github "
    )
    redrive = told[3].partition("; penstock ")[2].split()[:4]
    assert run(node, *redrive, "--dry-run").stdout == "1 would go back\n"
