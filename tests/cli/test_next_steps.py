"""What a command says to do next: which node, which topic, which command with which options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess, penstock

NOBODY = "http://127.0.0.1:9"


def test_the_doctor_names_the_node_that_was_killed_and_the_step(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path / "data") as node:
        well = penstock("doctor", "--data-dir", str(tmp_path / "data"))
        node.process.kill()
        node.process.wait()
        done = penstock("doctor", "--data-dir", str(tmp_path / "data"))

    assert f"ok     The node in {tmp_path}/data answers, with 1 signing key." in well.stdout
    assert done.returncode == 1
    assert f"wrong  No node is running in {tmp_path}/data." in done.stdout
    assert f"Start one there with penstock up --data-dir {tmp_path}/data." in done.stdout
    assert "Nothing answers" not in done.stdout


def test_a_hint_repeats_the_options_that_led_to_the_node(node: NodeProcess, tmp_path: Path) -> None:
    config = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    where = ("--data-dir", node.ready["data_dir"])
    penstock("topic", "set", "hinted", "max_attempts=1", *where)
    penstock("send", "hinted", "--data", "x", *where)
    leased = penstock("recv", "hinted", "--json", "--wait", "20s", *where).stdout
    command = [sys.executable, "-m", "penstock.cli", "nack", "-", *where]
    subprocess.run(command, input=leased, text=True, check=True, capture_output=True)
    penstock("context", "add", "shop", *where, env=config)
    penstock("topic", "set", "asleep", "paused=true", *where)
    token = tmp_path / "w.token"
    token.write_text(penstock("token", "issue", "--for", "worker", "--topic", "hinted", *where).stdout)

    by_directory = penstock("doctor", *where).stdout
    by_context = penstock("doctor", "--context", "shop", env=config).stdout
    by_worker = penstock("doctor", *where, "--token-file", str(token)).stdout

    redrive = "penstock dlq redrive hinted"
    assert f"penstock dlq show hinted {' '.join(where)}, then {redrive} {' '.join(where)}\n" in by_directory
    assert f"{redrive} --context shop\n" in by_context
    assert "hinted has 1 dead letter" in by_worker
    assert redrive not in by_worker
    assert f"penstock dlq list none {' '.join(where)}" in penstock("dlq", "show", "none", *where).stderr
    assert f"paused=false {' '.join(where)})" in penstock("recv", "asleep", *where).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--context", "shop", "whoami"), "options stand behind the command: penstock whoami --context shop ("),
        (("--data-dir", "my dir", "topics", "a"), "behind the command: penstock topics --data-dir 'my dir' a ("),
        (("--json", "version"), "options stand behind the command: penstock version --json ("),
        (("--context", "shop"), "options stand behind the command, as in penstock status --data-dir DIR ("),
    ],
)
def test_an_option_before_the_command_is_shown_where_it_belongs(words: tuple[str, ...], told: str) -> None:
    done = penstock(*words)

    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_a_topic_that_is_not_there_is_named_with_the_near_one(node: NodeProcess) -> None:
    where = ("--data-dir", node.ready["data_dir"])
    penstock("send", "shop/orders", "--data", "x", *where)

    one, far = penstock("topics", "shop/order", *where), penstock("topics", "zzzzzz", *where)
    got, none = penstock("recv", "shop/order", *where), penstock("recv", "zzzzzz", *where)
    there = penstock("recv", "shop/orders", "--visibility", "1h", *where), penstock("recv", "shop/orders", *where)

    assert (one.returncode, "There is no topic shop/order. Did you mean shop/orders?" in one.stderr) == (1, True)
    assert f"There is no topic zzzzzz. See penstock topics {' '.join(where)}" in far.stderr
    all_gone = "has no messages at all, waiting, leased or delayed"
    assert got.stderr == f"nothing there; shop/order {all_gone} (did you mean shop/orders?)\n"
    assert (none.returncode, none.stderr) == (0, f"nothing there; zzzzzz {all_gone}\n")
    # A leased message is there, though not for this receiver.
    assert there[1].stderr == "nothing there\n"


def test_a_topic_of_dead_letters_alone_shows_no_age(node: NodeProcess) -> None:
    where = ("--data-dir", node.ready["data_dir"])
    penstock("topic", "set", "only-dead", "max_attempts=1", *where)
    penstock("send", "only-dead", "--data", "x", *where)
    leased = json.loads(penstock("recv", "only-dead", "--json", "--wait", "20s", *where).stdout)
    waiting = penstock("topics", "only-dead", *where).stdout.splitlines()[1].split()
    penstock("nack", leased["msg_id"], leased["receipt"], *where)
    dead = penstock("topics", "only-dead", *where).stdout.splitlines()[1].split()

    assert waiting[7].endswith("s")
    assert (dead[4], dead[7]) == ("1", "-")


def test_a_route_that_takes_the_place_of_another_says_so(node: NodeProcess) -> None:
    where = ("--data-dir", node.ready["data_dir"])

    first = penstock("route", "add", "/swap", NOBODY, *where)
    second = penstock("route", "add", "/swap", "http://127.0.0.1:2", *where)
    third = penstock("route", "add", "/swap/", NOBODY, "--json", *where)
    refused = penstock("route", "add", "/v1", NOBODY, *where)
    penstock("route", "remove", "/swap", *where)

    assert "replaced" not in first.stdout
    assert f"replaced the route of /swap to {NOBODY}\n" in second.stdout
    assert json.loads(third.stdout)["replaced"] == ["http://127.0.0.1:2"]
    assert refused.stderr == "penstock: The route is refused: '/v1' is one of the gateway's own paths.\n"


def test_stop_names_the_whole_directory_and_the_way_to_another(tmp_path: Path) -> None:
    done = penstock("stop", "--data-dir", "here", cwd=tmp_path)

    said = f"penstock: no node is running in {tmp_path}/here: name another by --data-dir (or PENSTOCK_DATA_DIR)\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_token_that_is_not_accepted_has_a_next_step(node: NodeProcess, tmp_path: Path) -> None:
    where = ("--data-dir", node.ready["data_dir"])
    file = tmp_path / "token"
    file.write_text(penstock("token", "issue", "--for", "worker", "--subject", "left", "--topic", "a", *where).stdout)
    penstock("token", "revoke", "--subject-ref", "left", *where)

    done = penstock("whoami", "--token-file", str(file), *where)

    assert "does not accept this token: revoked. Get a new one (" in done.stderr
