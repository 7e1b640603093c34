"""A node's standard output: it never waits for a reader, and keeps its order with the log."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.cli.output import Output


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """Make a pipe: the end to read, and a stream on the other."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield reading, stream
    os.close(reading)


def test_what_nobody_reads_is_said_without_waiting(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reading, stream = pipe
    output = Output(stream)
    for _ in range(100):
        output.say("x" * 4095 + "\n")
    settled = output.settle(0.01)
    read = 0
    while read < 100 * 4096:
        read += len(os.read(reading, 65536))

    assert (settled, read) == (False, 100 * 4096)


def test_what_was_said_is_written_when_it_is_settled(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reading, stream = pipe
    output = Output(stream)
    output.say("first\n")
    output.say("sécond\n")

    assert output.settle(60)
    assert os.read(reading, 100).decode() == "first\nsécond\n"


def test_a_stream_that_is_no_file_is_written_to_at_once_and_may_be_gone() -> None:
    stream = io.StringIO()
    output = Output(stream)
    output.say("heard")
    shown = stream.getvalue()
    stream.close()
    output.say("not heard")

    assert (shown, output.settle()) == ("heard", True)


def test_on_the_logs_own_file_it_keeps_its_order_with_the_log() -> None:
    script = """
import sys
from penstock.cli.output import Output
from penstock.kernel.log import Log, configure
configure("json", "info")
output = Output(sys.stdout)
output.dress(lambda lines: lines)
for number in range(200):
    Log("test").info(f"event.{number}")
    output.say(f"said.{number}\\n")
output.settle(60)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=True)
    found = [line if line.startswith("said") else json.loads(line)["event"] for line in done.stdout.splitlines()]

    assert found == [f"{what}.{number}" for number in range(200) for what in ("event", "said")]
