"""A node whose log nobody reads: it becomes ready, serves, tells what was lost once somebody reads, and ends."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
from typing import Any, Self

from tests.acceptance.node_process import PATIENCE, START_S, STOP_S, ask

KEPT = 20
# With a reader, the last lines are waited for as long as it takes a busy machine to read them.
_START = f"""
import sys
from penstock.cli import main
from penstock.kernel.log_writer import WRITER, LogWriter
WRITER.lines_max = {KEPT}
if sys.argv[1:]:
    LogWriter.close.__defaults__ = (float(sys.argv[1]),)
sys.exit(main(["up", "--json", "--amnesia", "--ephemeral-ports", "--set", "node.echo=true"]))
"""


class Unread:
    """A node that logs into a pipe which was full before it started."""

    def __init__(self, *end_s: str) -> None:
        self._end_s = end_s

    def __enter__(self) -> Self:
        self._reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._stuffing = _fill(writing)
        os.set_blocking(writing, True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *self._end_s],
            stdout=subprocess.PIPE,
            stderr=writing,
            text=True,
            env={**PATIENCE, **os.environ},
        )
        os.close(writing)
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], START_S)[0]:
            self.__exit__()
            raise AssertionError("the node waits for somebody to read its log")
        self.ready: dict[str, Any] = json.loads(self.process.stdout.readline())
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=STOP_S)
        os.close(self._reading)

    def statuses(self, service: str, path: str, count: int) -> set[int]:
        """Ask the same so many times, on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ready["ports"][service], timeout=STOP_S)
        found = {ask(connection, "POST", path, {"text": "x"}).status for _ in range(count)}
        connection.close()
        return found

    def page(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.ready["ports"]["admin"], timeout=STOP_S)
        body = ask(connection, "GET", path, None, self.ready["token"]).body.decode()
        connection.close()
        return body

    def lost(self) -> int:
        """Return what the node counts as lost."""
        line = next(line for line in self.page("/metrics").splitlines() if line.startswith("log_dropped_total{"))
        return int(float(line.rsplit(" ", 1)[1]))

    def read_log(self, told: list[dict[str, Any]]) -> None:
        """Read to the end, behind what the pipe was filled with."""
        read = bytearray()
        while piece := os.read(self._reading, 65536):
            read += piece
        told += [json.loads(line) for line in read[self._stuffing :].splitlines()]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


def _fill(writing: int) -> int:
    total = 0
    try:
        while True:
            total += os.write(writing, b"\n" * 4096)
    except BlockingIOError:
        return total


def test_a_node_serves_although_nobody_reads_its_log_and_says_what_was_lost_to_the_first_who_does() -> None:
    told: list[dict[str, Any]] = []
    with Unread("60") as node:
        refused = node.statuses("mailbox", "/v1/send/orders", 90)
        served = node.statuses("echo", "/v1/echo", 20)
        ready = json.loads(node.page("/readyz"))["ready"]
        lost = node.lost()
        reader = threading.Thread(target=node.read_log, args=(told,))
        reader.start()
        code = node.end()
        reader.join(STOP_S)

    losses = [line["lines"] for line in told if line["event"] == "log.lost"]
    refusals = [line for line in told if line["event"] == "request.refused"]
    assert (refused, served, ready, code) == ({401}, {200}, True, 0)
    assert lost >= 90 - KEPT - 10
    assert sum(losses) >= lost
    assert len(refusals) + sum(losses) >= 90, "whoever is not there was counted"
    assert told[-1]["event"] == "drained"


def test_a_node_ends_in_time_and_cleanly_although_nobody_ever_reads_its_log() -> None:
    with Unread() as node:
        node.statuses("mailbox", "/v1/send/orders", 90)

        assert node.end() == 0
