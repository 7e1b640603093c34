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
    words = [sys.executable, "-m", "penstock", "weave", f"{PROGRAMS}/{name}", *options]
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
    "words",
    [
        ["races.py"],
        ["races.py::nothing"],
        ["missing.py::main"],
        ["strange.py::not_async"],
        ["strange.py::wants_arguments"],
        ["races.py::lost_update", "--strategy", "best"],
        ["races.py::lost_update", "--seconds", "0"],
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
