"""The command line: what it prints, what it exits with, and that it starts fast by importing little."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock import __version__
from penstock.cli import COMMANDS, main, parser_of
from penstock.cli.commands import up
from penstock.lint.cli import command as lint_command
from penstock.net.server.bind import CannotBind


def test_version_prints_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"

    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == __version__


def test_no_command_prints_the_help_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out

    assert all(command in shown for command in COMMANDS)


def test_config_show_names_the_origin_of_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json", "--set", "node.echo=true"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}

    assert rows["node.echo"] == {
        "key": "node.echo",
        "value": True,
        "origin": "--set",
        "default": False,
        "apply": "restart",
        "source": "set",
        "changed": True,
        "follows": "",
        "help": "Run the echo service, a small example of a complete service.",
    }
    assert rows["http.read_timeout"]["origin"] == "default"


def test_config_show_names_the_variable_that_was_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATA_DIR", "/srv/queue")
    assert main(["config", "show", "--changed"]) == 0
    short = capsys.readouterr().out
    monkeypatch.setenv("PENSTOCK_NODE__DATA_DIR", "/srv/other")
    assert main(["config", "show", "--changed"]) == 0

    assert "node.data_dir = /srv/queue  (PENSTOCK_DATA_DIR)" in short
    assert "node.data_dir = /srv/other  (PENSTOCK_NODE__DATA_DIR)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("mailbox.limits.rps", ""),
        ("mailbox.port", ""),
        ("mailbox.retention.redy", "; did you mean mailbox.retention.ready?"),
        ("mailbox.max_body_bytes", "; did you mean mailbox.limits.max_body_bytes?"),
        ("mailbx.max_conns", "; did you mean mailbox.max_conns?"),
    ],
)
def test_an_unknown_key_is_answered_with_a_near_one_of_its_table(
    capsys: pytest.CaptureFixture[str], key: str, meant: str
) -> None:
    assert main(["config", "show", "--set", f"{key}=5"]) == 2
    assert f"there is no such key{meant}\n" in capsys.readouterr().err


def test_a_port_whose_owner_nobody_knows_has_a_sentence_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "owner_of", lambda _port: "")

    said = up._cannot_bind(CannotBind("127.0.0.1:5300 cannot be used: address already in use", 5300))
    assert "in use: another program listens there. Stop it, or choose" in said


def test_config_show_can_tell_only_what_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--changed", "--set", "node.echo=true"]) == 0

    assert capsys.readouterr().out == "node.echo = true  (--set)\n"


def test_config_check_tells_every_fault(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[echo]\nworkers = 3\n")
    bad.write_text("[echo]\nworkers = 99\nwokers = 3\n")

    assert main(["config", "check", str(good)]) == 0
    assert main(["config", "check", str(bad)]) == 2
    told = capsys.readouterr().err
    assert "echo.workers" in told
    assert "echo.wokers" in told


def test_config_check_reads_the_environment_as_up_does(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hooks.toml"
    file.write_text('[interop.providers.github]\nsecrets = ["env:HOOK_SECRET"]\n')
    monkeypatch.delenv("HOOK_SECRET", raising=False)
    assert main(["config", "check", str(file)]) == 2
    monkeypatch.setenv("HOOK_SECRET", "fake-secret")
    assert main(["config", "check", str(file)]) == 0
    monkeypatch.setenv("PENSTOCK_ECHO__WORKERS", "99")

    assert main(["config", "check", str(file)]) == 2, "up would refuse this too"
    assert "echo.workers" in capsys.readouterr().err


def every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Walk a parser and those of its actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from every_parser(each)


def test_no_parser_takes_the_beginning_of_an_option_for_the_whole() -> None:
    parsers = [*every_parser(parser_of(COMMANDS)), lint_command()]

    assert len(parsers) > 80
    assert [parser.prog for parser in parsers if parser.allow_abbrev] == []


def test_the_beginning_of_an_option_is_refused_with_its_whole_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["topics", "--pref", "a/"])

    assert "unrecognized arguments: --pref; did you mean --prefix?" in capsys.readouterr().err


def test_lint_is_reachable_from_the_command_line(tmp_path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import asyncio\n\n\nasync def f():\n    await asyncio.wait_for(g(), 1)\n")

    assert main(["lint", str(bad)]) == 1


def test_version_does_not_import_the_node() -> None:
    """A command pays only for itself: this is what keeps the command line quick."""
    code = "import sys; from penstock.cli import main; main(['version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    heavy = {"asyncio", "msgspec", "uvloop", "rich", "prometheus_client", "penstock.node.build"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("command", ["send", "recv", "ack", "topics", "dlq", "put", "get", "tour", "completion"])
def test_parsing_a_data_command_imports_nothing_heavy(command: str) -> None:
    """What a command needs it loads when it runs; to be told of a wrong option, nobody waits for asyncio."""
    code = f"import sys; from penstock.cli import parser_of\nparser_of({{{command!r}}}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"asyncio", "msgspec", "uvloop", "rich", "penstock.sdk", "penstock.node.build"}.isdisjoint(loaded)
