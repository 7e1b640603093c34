"""The log of a process: however it ends its last lines are there, and nobody waits for a reader."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys

import pytest

from penstock.kernel.log import Log, configure

WAIT_S = 120.0
_BEGIN = """
import asyncio, logging, os, signal, sys, threading
from penstock.kernel.log import Log, configure, settle
from penstock.kernel.log_writer import WRITER
configure("json", "info")
log = Log("svc-test")
"""


def ran(script: str, **given: object) -> subprocess.CompletedProcess[str]:
    """Run a script that logs, to its end."""
    command = [sys.executable, "-c", _BEGIN + script]
    options = {"capture_output": True, "text": True, "timeout": WAIT_S, **given}
    return subprocess.run(command, check=False, **options)  # type: ignore[call-overload,no-any-return]


def events(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Give the events in order. The interpreter writes a traceback in pieces, and a line may come in between."""
    return [json.loads(line)["event"] for line in re.findall(r'{"ts": .*}\n', done.stderr)]


def test_setting_up_the_log_starts_no_thread() -> None:
    done = ran("print(threading.active_count())")

    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("sys.exit(2)", 2),
        ("raise KeyboardInterrupt", -2),
        ("raise RuntimeError('planted')", 1),
        ("os.kill(os.getpid(), signal.SIGINT)", -2),
    ],
)
def test_however_a_process_ends_its_last_lines_are_there(end: str, code: int) -> None:
    done = ran(f"for number in range(500): log.info(f'event.{{number}}')\n{end}")

    assert events(done) == [f"event.{number}" for number in range(500)]
    assert done.returncode == code


def test_what_led_to_a_crash_stands_before_it_once_the_log_is_settled() -> None:
    done = ran("log.info('before')\nsettle()\nraise RuntimeError('planted')")

    assert done.stderr.index("before") < done.stderr.index("Traceback")


def test_the_child_of_a_fork_has_a_log_of_its_own_and_repeats_nothing() -> None:
    script = """
for number in range(100): log.info(f"parent.{number}")
if os.fork() == 0:
    log.info("child")
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
log.info("parent.last")
"""
    # Since 3.12 Python warns of a fork beside threads, which is what this is about.
    told = events(ran(script, env={**os.environ, "PYTHONWARNINGS": "ignore"}))

    assert [event for event in told if event != "child"] == [*(f"parent.{n}" for n in range(100)), "parent.last"]
    assert told.count("child") == 1


def test_a_process_ends_although_nobody_reads_its_log() -> None:
    reading, writing = os.pipe()
    try:
        script = _BEGIN + "for number in range(20_000): log.info('event', number=number)\nprint(WRITER.depth)"
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writing, text=True, timeout=WAIT_S, check=True)
    finally:
        os.close(writing)
        os.close(reading)

    assert int(done.stdout) > 1000


def test_a_log_that_is_closed_or_broken_disturbs_nobody() -> None:
    script = "os.close(2)\nfor number in range(100): log.info('event')\nsettle()\nprint(WRITER.dropped)"
    done = ran(script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "100\n", "")


def test_the_loops_own_complaints_go_the_same_way() -> None:
    done = ran("logging.getLogger('asyncio').error('Task was destroyed')\nlogging.getLogger('asyncio').info('quiet')")

    assert [json.loads(line) | {"ts": ""} for line in done.stderr.splitlines()] == [
        {"ts": "", "level": "error", "service": "asyncio", "event": "Task was destroyed"}
    ]


def test_a_loss_is_a_line_like_the_others() -> None:
    done = ran("""
WRITER.lines_max = 3
with WRITER._owner:  # as long as nobody writes
    for number in range(10): log.info("event", number=number)
""")
    told = [json.loads(line) for line in done.stderr.splitlines()]

    assert {name: told[0][name] for name in ("level", "service", "event", "lines")} == {
        "level": "warning", "service": "kernel", "event": "log.lost", "lines": 7,
    }  # fmt: skip
    assert [line["number"] for line in told[1:]] == [7, 8, 9]


def test_a_stream_that_is_no_file_is_written_to_at_once(monkeypatch) -> None:
    loggers = [logging.getLogger(name) for name in ("penstock", "asyncio")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    try:
        configure("json", "warn")
        Log("svc-test").info("quiet")
        Log("svc-test").warning("heard")
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)

    assert [json.loads(line)["event"] for line in screen.getvalue().splitlines()] == ["heard"]
