"""`penstock up` as a person at a terminal sees it: addresses, a link that works once, and a drain that counts down."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

from tests.acceptance.node_process import PATIENCE

WAIT_S = 60.0


class Terminal:
    """A node on a pseudo terminal."""

    def __init__(self, *arguments: str, columns: int = 200) -> None:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "penstock.cli", "up", "--amnesia", "--ephemeral-ports", *arguments]
        environment = {**PATIENCE, **os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
        self.process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
        self._terminal, self._name = ours, os.ttyname(theirs)
        os.close(theirs)
        self.shown = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read until the screen has shown something."""
        until = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, self.shown)):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"never shown: {pattern}\n{self.shown}"
            try:
                piece = os.read(self._terminal, 4096)
            except OSError:  # Linux says so when the other side has closed
                piece = b""
            assert piece, f"ended before {pattern}\n{self.shown}"
            self.shown += piece.decode()
        return found

    def stop_output(self) -> None:
        """Do what Ctrl-S does: from now on whoever writes waits."""
        terminal = os.open(self._name, os.O_RDWR | os.O_NOCTTY)
        termios.tcflow(terminal, termios.TCOOFF)
        os.close(terminal)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._terminal)


# How it counts is shown on virtual time, in `tests/cli/test_countdown.py`.
COUNTED = r"draining: [^\n]*svc-echo \(\d+ s left\)"


def drained() -> tuple[bool, list[int], int, int]:
    """Drain while a job runs; returns: was a countdown seen, both statuses of the link, the job's, the exit code."""
    terminal = Terminal("--set", "node.echo=true", "--set", "echo.drain_deadline=5s")
    try:
        link = terminal.read_until(
            r"works once, for 5 minutes; penstock open makes another\): (http://127\.0\.0\.1:\d+)/#once=([\w-]{40,})"
        )
        terminal.read_until("operator token \\(kept nowhere else\\): psp1_")
        port = re.search(r"echo\s.*?http://127\.0\.0\.1:(\d+)", terminal.shown)
        assert port is not None
        page = http.client.HTTPConnection(link[1].removeprefix("http://"), timeout=WAIT_S)
        statuses = []
        for _ in range(2):
            page.request("POST", "/login", json.dumps({"once": link[2]}))
            answer = page.getresponse()
            answer.read()
            statuses.append(answer.status)
        slow = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=WAIT_S)
        while not is_admitted(slow, page):
            slow.getresponse().read()  # it was over before anybody looked
        page.close()
        terminal.process.send_signal(signal.SIGTERM)
        terminal.read_until("stopped[,;] ")
        served = slow.getresponse().status
        slow.close()
        return bool(re.search(COUNTED, terminal.shown)), statuses, served, terminal.process.wait(WAIT_S)
    finally:
        terminal.close()


def test_a_drain_counts_down_on_a_terminal_and_the_page_has_a_link() -> None:
    counted, statuses, served, code = drained()

    assert counted
    assert statuses == [204, 401]
    assert (served, code) == (200, 0)


def is_admitted(slow: http.client.HTTPConnection, page: http.client.HTTPConnection) -> bool:
    """Send a job of a few seconds, well within the drain's deadline; tell whether it was seen at work."""
    slow.request("POST", "/v1/echo", json.dumps({"text": "x", "delay_ms": 4000}))
    while not select.select([slow.sock], [], [], 0)[0]:
        page.request("GET", "/metrics")
        if b'inflight_requests{service="svc-echo"} 1.0' in page.getresponse().read():
            return True
    return False


def screen(written: str) -> list[str]:
    """Return the lines a terminal would show: a carriage return goes back, and what clears a line clears it."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        shown = line.rpartition("\x1b[K")[2]
        lines.append(re.sub(r"\x1b\[[0-9;]*m", "", shown).removeprefix("\r"))
    return lines


def test_the_log_and_the_countdown_do_not_write_into_each_other() -> None:
    # At this level nothing is left out of the log.
    terminal = Terminal("--set", "node.echo=true", "--set", "node.log.level=debug")
    try:
        terminal.read_until("operator token")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.read_until("stopped, drained cleanly")
    finally:
        terminal.close()
    lines = screen(terminal.shown)

    logged = [line for line in lines if "svc-mailbox phase" in line]
    assert [re.sub(r"^[\d:.]+ info +", "", line) for line in logged] == [
        "svc-mailbox phase phase=draining",
        "svc-mailbox phase phase=stopped",
    ]
    assert [line for line in lines if re.search(r"draining[,:] ", line)] == []


def test_addresses_are_whole_on_a_narrow_terminal() -> None:
    terminal = Terminal(columns=24)
    try:
        terminal.read_until("operator token")
    finally:
        terminal.close()

    assert "…" not in terminal.shown


def test_a_terminal_that_was_stopped_stops_neither_the_node_nor_its_end() -> None:
    # At this level nothing is left out of the log.
    terminal = Terminal("--set", "node.echo=true", "--set", "node.log.level=debug")
    try:
        terminal.read_until("operator token")
        port = re.search(r"echo\s.*?http://127\.0\.0\.1:(\d+)", terminal.shown)
        assert port is not None
        terminal.stop_output()
        echo = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=WAIT_S)
        statuses = []
        for path in ("/v1/echo", "/nowhere"):
            echo.request("POST", path, json.dumps({"text": "x"}))
            answer = echo.getresponse()
            answer.read()
            statuses.append(answer.status)
        echo.close()
        terminal.process.send_signal(signal.SIGTERM)
        code = terminal.process.wait(WAIT_S)
    finally:
        terminal.close()

    assert (statuses, code) == ([200, 404], 0)
