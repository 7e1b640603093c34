"""What a command says when the node is not there, is another one, or wants another token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.acceptance.node_process import NodeProcess, penstock

NOBODY = "http://127.0.0.1:9"


def said(*words: str, **env: str) -> str:
    """Run a command that fails; returns its sentence."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    done = penstock(*words, env={**outside, **env})
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


@pytest.fixture
def stranger() -> Iterator[str]:
    """A web server that is no node."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("command", ["topics", "status"])
def test_a_url_where_nothing_answers_is_named_however_it_was_given(command: str, tmp_path: Path) -> None:
    told = f"penstock: nothing answers at {NOBODY} (connection refused)."
    config = {"XDG_CONFIG_HOME": str(tmp_path)}
    penstock("context", "add", "away", "--url", NOBODY, "--use", env={**os.environ, **config})

    assert said(command, "--url", NOBODY).startswith(told)
    assert said(command, PENSTOCK_URL=NOBODY).startswith(told)
    assert said(command, **config).startswith(told)


@pytest.mark.parametrize("command", ["topics", "status"])
def test_a_port_that_is_not_the_gateways_is_said_to_be_none(node: NodeProcess, command: str) -> None:
    url = f"http://127.0.0.1:{node.port('admin' if command == 'topics' else 'mailbox')}"

    assert f"{url} is not the URL of a gateway" in said(command, "--url", url, PENSTOCK_TOKEN=node.ready["token"])


@pytest.mark.parametrize("command", ["topics", "status"])
def test_a_web_server_is_said_to_be_no_node(stranger: str, command: str) -> None:
    assert f"what answers at {stranger} is not a penstock node." in said(command, "--url", stranger)


@pytest.mark.parametrize("command", ["topics", "status"])
def test_a_missing_token_is_asked_for_by_the_options_of_the_command_line(node: NodeProcess, command: str) -> None:
    told = said(command, "--url", f"http://127.0.0.1:{node.port('omnigate')}")

    assert "Give --token-file FILE, or set PENSTOCK_TOKEN_FILE" in told
    assert "Authorization" not in told


@pytest.mark.parametrize("way", ["gateway", "directory"])
def test_where_only_the_operators_token_will_do_the_holder_of_another_is_named(
    node: NodeProcess, tmp_path: Path, way: str
) -> None:
    where = ("--data-dir", node.ready["data_dir"])
    issue = ("token", "issue", "--subject", "resizer", "--for", "worker", "--topic", "a")
    (tmp_path / "token").write_text(penstock(*issue, *where).stdout)
    if way == "gateway":
        where = ("--url", f"http://127.0.0.1:{node.port('omnigate')}")

    told = said("status", *where, "--token-file", str(tmp_path / "token"))
    assert told.startswith("penstock: only the operator's token will do, and the one in use is resizer's.")


def test_top_with_the_token_of_a_worker_says_one_sentence_and_shows_nothing(node: NodeProcess, tmp_path: Path) -> None:
    where = ("--data-dir", node.ready["data_dir"])
    issued = penstock("token", "issue", "--subject", "resizer", "--for", "worker", "--topic", "a", *where)
    (tmp_path / "token").write_text(issued.stdout)
    done = penstock("top", *where, "--token-file", str(tmp_path / "token"))
    as_json = penstock("top", "--json", *where, "--token-file", str(tmp_path / "token"))

    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("penstock: only the operator's token will do, and the one in use is resizer's.")
    assert (as_json.returncode, as_json.stderr) == (0, ""), "the topics that the token covers need no operator"


def test_the_page_of_a_node_elsewhere_is_opened_there(node: NodeProcess) -> None:
    url = f"http://127.0.0.1:{node.port('omnigate')}"

    assert "run penstock open on the node's machine" in said("open", "--url", url, PENSTOCK_TOKEN=node.ready["token"])
    assert "run penstock open on the node's machine" in said("open", PENSTOCK_URL=url)


def test_an_upstream_that_does_not_answer_is_named_by_its_url(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path):
        done = penstock("route", "add", "/shop", NOBODY, "--json", "--data-dir", str(tmp_path))
    warnings = json.loads(done.stdout)["warnings"]

    assert f"{NOBODY} does not answer yet: Connection refused." in warnings


@pytest.mark.parametrize("command", ["topics", "status", "open", "doctor"])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_options_that_exclude_each_other_are_wrong_arguments(command: str, as_json: tuple[str, ...]) -> None:
    done = penstock(command, "--url", NOBODY, "--data-dir", "somewhere", *as_json)

    assert (done.returncode, done.stderr) == (2, "penstock: Give --url or --data-dir, not both.\n")
    assert ('"code": "malformed"' in done.stdout) is bool(as_json)


@pytest.mark.parametrize("command", ["topics", "status"])
def test_a_url_that_is_none_is_a_wrong_argument(command: str) -> None:
    done = penstock(command, "--url", "ftp://host")

    assert (done.returncode, "'ftp://host' is no URL of a node" in done.stderr) == (2, True)


def test_a_directory_without_a_node_is_named_also_when_nobody_named_it(tmp_path: Path) -> None:
    for command in ("topics", "status"):
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        here = {**outside, "XDG_CONFIG_HOME": str(tmp_path)}
        done = penstock(command, env=here, cwd=tmp_path)

        assert f"no node is running in {tmp_path}/.penstock:" in done.stderr
        assert "--url (PENSTOCK_DATA_DIR, PENSTOCK_URL)" in done.stderr


def test_the_doctor_does_not_send_people_to_a_command_that_says_the_same(tmp_path: Path) -> None:
    done = penstock("doctor", "--data-dir", str(tmp_path))

    assert f"No node is running in {tmp_path}" in done.stdout
    assert "penstock status" not in done.stdout
