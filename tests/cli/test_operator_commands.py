"""The commands an operator uses by hand: look, remove, open the page, find out what is wrong, stop."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.cli import COMMANDS
from penstock.cli.help_page import EXAMPLES, page
from tests.acceptance.node_process import NodeProcess, penstock


@pytest.fixture
def cli(node: NodeProcess):
    def run(*words: str, code: int = 0) -> str:
        done = penstock(*words, env={**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"]})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_the_help_names_every_command_in_a_group_and_its_examples_begin_with_commands() -> None:
    shown = page(COMMANDS)

    assert all(f"\n  {name}" in shown for name in COMMANDS)
    assert "\nMore\n" not in shown, "every command belongs to a group"
    assert all(line.split()[1] in COMMANDS for line, _ in EXAMPLES)
    assert "\x1b" not in shown, "colours are for terminals"


def test_peek_takes_nothing_and_purge_asks_first(cli) -> None:
    cli("send", "desk/a", "--data", "hello")

    assert "hello" in cli("peek", "desk/a")
    assert "hello" in cli("peek", "desk/a")
    assert "say --yes" in cli("purge", "desk/a", code=2)
    assert "hello" in cli("peek", "desk/a")
    assert cli("purge", "desk/a", "--yes") == "1 removed\n"
    assert "nothing there" in cli("peek", "desk/a")


def test_open_makes_a_link_each_time(cli) -> None:
    first, second = (json.loads(cli("open", "--json"))["link"] for _ in range(2))

    assert "#once=" in first
    assert first != second


def test_what_is_watched_is_drawn_once_where_nobody_watches(cli) -> None:
    cli("send", "desk/top", "--data", "x" * 2000)

    shown = cli("status", "--watch")
    assert "node: ready" in shown
    assert "A node on its own needs none." in shown, "dht_peers is degraded here, and that is no fault"
    drawn = cli("top")
    assert "desk/top" in drawn
    assert "2.0 KiB" in drawn


def test_a_setting_that_a_topic_does_not_have_names_the_one_that_was_meant(cli) -> None:
    assert "no setting max_attempt; did you mean max_attempts?" in cli(
        "topic", "set", "desk/a", "max_attempt=3", code=2
    )
    assert "There are max_attempts, " in cli("topic", "set", "desk/a", "nonsense=1", code=2)
    assert "--wait must be at most 20s." in cli("recv", "desk/a", "--wait", "99h", code=2)


def test_doctor_says_what_is_well_and_what_is_not(cli, node: NodeProcess, tmp_path: Path) -> None:
    well = cli("doctor")
    assert "ok     The token is good; its subject is operator." in well
    assert "All services are ready." in well
    (tmp_path / "token").write_text("psp1_wrong")
    url = f"http://127.0.0.1:{node.port('omnigate')}"
    told = cli("doctor", "--url", url, "--token-file", str(tmp_path / "token"), code=1)
    assert "wrong  The capability cannot be read.\n       Copy the token whole" in told
    assert "wrong  There is no data directory" in cli("doctor", "--data-dir", str(tmp_path / "none"), code=1)
    away = [json.loads(line) for line in cli("doctor", "--url", "http://127.0.0.1:9", "--json", code=1).splitlines()]
    assert [each["verdict"] for each in away] == ["ok", "wrong"]


def test_stop_drains_a_node_and_waits_until_it_has_ended(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        assert penstock("stop", "--data-dir", str(tmp_path)).stdout == "stopped\n"
        code, out, _ = node.wait()
    none = penstock("stop", "--data-dir", str(tmp_path))

    assert (code, '"stopped"' in out) == (0, True)
    assert (none.returncode, "no node is running" in none.stderr) == (1, True)
