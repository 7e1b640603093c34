"""`penstock weave`: exit codes, one JSON line, tokens that fit in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
KEYS = [
    "verdict",
    "complete",
    "kind",
    "schedules",
    "states",
    "steps",
    "outcomes",
    "seconds",
    "token",
    "message",
    "trace",
]


def command(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    place = name if name.startswith("/") else f"{PROGRAMS}/{name}"
    words = [sys.executable, "-m", "penstock", "weave", place, *options]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=environment)


@pytest.mark.parametrize(
    ("name", "options", "code", "verdict"),
    [
        ("races.py::lost_update_right", [], 0, "holds"),
        ("races.py::leans_on_order", [], 1, "fails"),
        ("races.py::leans_on_order", ["--mode", "fifo"], 0, "holds"),
        ("strange.py::too_big", ["--max-schedules", "5"], 3, "cut"),
    ],
)
def test_the_exit_code_and_the_json_line_tell_the_verdict(name: str, options, code: int, verdict: str) -> None:
    done = command(name, *options, "--json")
    report = json.loads(done.stdout)

    assert done.returncode == code, done.stderr
    assert list(report) == KEYS
    assert report["verdict"] == verdict


@pytest.mark.parametrize(
    ("name", "options", "code", "sentence"),
    [
        ("throws_dice", [], 3, "not deterministic: the program draws random numbers (random in strange.py:"),
        ("reads_wall_clock", ["--max-schedules", "2"], 3, "reads the wall clock (time_ns in strange.py:"),
        ("connects", [], 3, "opens a socket"),
        ("starts_thread", [], 3, "starts a thread; use asyncio.to_thread"),
        ("starts_a_process", [], 3, "starts a process"),
        ("too_big", ["--seconds", "1"], 3, "cut after 1.0 seconds"),
        ("swallows_everything", ["--seconds", "1"], 3, "cut after 1.0 seconds"),
        ("waits_for_a_lock_for_ever", ["--seconds", "1", "--jobs", "2"], 3, "cut after 1.0 seconds"),
        ("asks_to_exit", [], 1, "SystemExit: 3"),
        ("recurses", [], 1, "RecursionError"),
        ("raises_what_cannot_be_printed", [], 1, "it cannot be printed"),
        ("holds_an_object_that_must_not_be_looked_at", ["--strategy", "hash"], 0, "raises RuntimeError when it is"),
        ("nests_deeply", ["--strategy", "hash"], 0, "nested too deeply"),
    ],
)
def test_a_strange_program_gets_a_verdict_and_a_sentence_in_time(name: str, options, code: int, sentence: str) -> None:
    """The command returns, and so keeps its seconds: `command` gives up after two minutes."""
    done = command(f"strange.py::{name}", *options, "--json")
    report = json.loads(done.stdout)

    assert done.returncode == code, (report, done.stderr)
    assert sentence in report["message"]
    assert done.stderr == ""


def test_a_file_that_never_ends_its_import_is_given_up_on(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("while True:\n    pass\n", encoding="utf-8")
    done = command(f"{tmp_path}/endless.py::main", "--seconds", "1")

    assert done.returncode == 2
    assert "is still being imported after 1 seconds" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["races.py"],
        ["races.py::nothing"],
        ["missing.py::main"],
        ["strange.py::not_async"],
        ["strange.py::wants_arguments"],
        ["races.py::lost_update", "--strategy", "best"],
        ["races.py::lost_update", "--seconds", "0"],
        ["races.py::lost_update", "--seconds", "nan"],
        ["races.py::lost_update", "--seconds", "inf"],
        ["races.py::lost_update", "--jobs", "0"],
        ["races.py::lost_update", "--schedule", "any"],
        ["races.py::lost_update", "--mode", "wild"],
    ],
)
def test_bad_arguments_are_one_sentence_and_exit_2(words) -> None:
    done = command(*words)

    assert done.returncode == 2
    assert done.stderr.startswith("penstock: ")
    assert "Traceback" not in done.stderr


def test_a_token_replays_in_another_process_and_figures_are_equal() -> None:
    first, second = (json.loads(command("libraries.py::janus_strands_item", "--json").stdout) for _ in range(2))
    replayed = command("libraries.py::janus_strands_item", "--schedule", first["token"])

    assert replayed.returncode == 1
    assert "a getter waits beside it" in replayed.stdout
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_two_processes_print_equal_figures_of_a_whole_search() -> None:
    words = ("libraries.py::condition_loses_notify_right", "--strategy", "hash", "--json")
    first, second = (json.loads(command(*words).stdout) for _ in range(2))

    assert first["complete"]
    assert first["states"] > 10
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
