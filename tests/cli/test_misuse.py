"""What somebody in a hurry does wrong: each is one sentence with a next step, and a JSON object with `--json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess, penstock
from tests.cli.conftest import SecureNode, outside


def told(*words: str, code: int, **env: str) -> str:
    """Run a command that fails; returns its one sentence."""
    done = penstock(*words, env=outside(**env))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["topics", "status", "doctor", "route list", "config reload"])
@pytest.mark.parametrize("option", ["--url", "--context"])
def test_an_empty_variable_of_a_script_leads_to_no_other_node(node: NodeProcess, command: str, option: str) -> None:
    """`--url "$NODE"` with NODE unset must not purge the node that happens to run here."""
    said = told(*command.split(), option, "", code=2, PENSTOCK_DATA_DIR=node.ready["data_dir"])

    assert f"{option} is empty. Say which node is meant, or leave it out." in said


@pytest.mark.parametrize("command", ["topics", "status"])
def test_every_way_to_miss_a_tls_gateway_has_a_next_step(secure: SecureNode, command: str, tmp_path: Path) -> None:
    url, port = secure.url, secure.node.port("omnigate")
    token = ("--token-file", str(secure.token))
    ca = ("--ca", str(secure.ca))
    (tmp_path / "key.pem").write_text("no certificate")

    def missed(where: str, *more: str, code: int = 1) -> str:
        return told(command, "--url", where, *token, *more, code=code)

    assert "write https://." in missed(f"http://localhost:{port}")
    assert "write http://" in missed(f"https://localhost:{secure.node.port('mailbox')}", *ca)
    assert "Give its CA file (--ca" in missed(url)
    assert "the host name that is in the certificate" in missed(f"https://127.0.0.1:{port}", *ca)
    no_ca = missed(url, "--ca", str(tmp_path / "key.pem"), code=2)
    assert "it holds no certificate. Give a file of PEM certificates." in no_ca
    assert "Check" in missed("https://no-such-host.invalid:5306", *ca)
    assert "Check that the node runs" in missed("https://localhost:9", *ca)
    assert "its port is a number from 1 to 65535" in missed("https://localhost:99999", *ca, code=2)
    assert "begins with http:// or https://" in missed(f"localhost:{port}", *ca, code=2)
    assert "Give the host and the port" in missed(f"{url}/below", *ca)


@pytest.mark.parametrize("command", ["topics", "peek a", "dlq list"])
def test_every_token_that_will_not_do_has_a_next_step(node: NodeProcess, tmp_path: Path, command: str) -> None:
    where = ("--data-dir", node.ready["data_dir"])
    issue = ("token", "issue", "--for", "worker", "--topic", "a")
    issued = penstock(*issue, "--subject", f"gone-{command[:3]}", *where).stdout
    penstock("token", "revoke", "--subject-ref", f"gone-{command[:3]}", *where)
    with NodeProcess(data_dir=tmp_path / "other") as other:
        foreign = other.ready["token"]

    def refused(token: str) -> str:
        return told(*command.split(), *where, code=1, PENSTOCK_TOKEN=token)

    assert "revoked. Ask its issuer for a new token." in refused(issued.strip())
    assert "get one from this node" in refused(foreign)
    assert "Copy the token whole" in refused("psp1_garbage")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dlq lst", "'lst' is none of list, peek, show, redrive, delete; did you mean list?"),
        ("peek a --state redy", "did you mean ready?"),
        ("completion tcsh", "'tcsh' is none of bash, zsh, fish"),
        ("topics --jsom", "did you mean --json?"),
        ("tpics", "did you mean topics?"),
    ],
)
def test_a_misspelt_word_names_the_one_that_was_meant(words: str, said: str) -> None:
    assert said in told(*words.split(), code=2)


FAILURES = [
    "lint nothing-here.py",
    "weave nothing-here.py::x",
    "token inspect x",
    "context use nothing-here",
    "get nothing",
    "put /nothing/here",
    "stop --data-dir /nothing/here",
    "mailbox check --data-dir /nothing/here",
    "storage check --data-dir /nothing/here",
    "audit verify --data-dir /nothing/here",
    "config check /nothing/here",
    "config show --set nothing=1",
    "up --set nothing=1",
    "up --data-dir /proc/nothing",
    "serve nothing",
    "open --data-dir /nothing/here",
    "tour --data-dir /nothing/here",
    "dlq delete a --yes --data-dir /nothing/here",
    "sqs env --data-dir /nothing/here",
    "webhook list --data-dir /nothing/here",
    "route list --data-dir /nothing/here",
    "dht status --data-dir /nothing/here",
    "doctor --data-dir /nothing/here",
]


@pytest.mark.parametrize("line", FAILURES)
def test_with_json_a_failure_prints_json_and_nothing_else(line: str, tmp_path: Path) -> None:
    done = penstock(*line.split(), "--json", env=outside(XDG_CONFIG_HOME=str(tmp_path)), cwd=tmp_path)
    objects = [json.loads(text) for text in done.stdout.splitlines()]

    assert done.returncode not in (0, None)
    assert objects, done.stderr
    assert "Traceback" not in done.stderr
    # What a command is there to find out, it tells in its own words; a failure of its own has a code and a sentence.
    assert all({"code", "detail"} <= each["error"].keys() for each in objects if "error" in each)
    assert "error" in objects[0] or line.startswith(("doctor", "config check"))
