"""Open-loop load: requests start when their time has come, whether or not earlier ones were answered.

    python -m benchmarks._overload.open_loop < plan.json

The plan names callers with a request and a rate; the outcome tells, for each, how many were offered, served and
refused, and how long the served ones took from the instant they were due. A caller that finds no free connection opens
one more, up to a bound; what could not be sent is counted as unsent and never silently left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

_OK = b"2"
_REFUSED = b"429"
TICK_S = 0.002
GRACE_S = 3.0


class Line(asyncio.Protocol):
    """One connection with at most one request on it."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.due = 0.0
        self.buffer = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, due: float) -> None:
        """Send the request that was due at `due`."""
        self.due = due
        self.transport.write(self.caller.next_request())

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data if self.buffer else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self.buffer = data
            return
        at = data.lower().find(b"content-length: ", 0, end) + 16
        if len(data) < end + 4 + int(data[at : data.find(b"\r\n", at)]):
            self.buffer = data
            return
        self.buffer = b""
        self.caller.answered(self, data[9:12])

    def connection_lost(self, exc: Exception | None) -> None:
        self.caller.lost(self)


class Caller:
    """One class of traffic."""

    def __init__(self, name: str, requests: list[bytes], rps: float, lines_max: int) -> None:
        """Send the requests in turn, from the front again at the end."""
        self.name = name
        self.requests = requests
        self._marked = any(b"NUMBER" in each for each in requests)
        self._number = 0
        self.rps = rps
        self.lines_max = lines_max
        self.idle: list[Line] = []
        self.lines = self.dialling = 0
        self.offered = self.unsent = self.served = self.refused = self.failed = 0
        self.served_at: list[float] = []
        self.took_s: list[float] = []
        self.began = 0.0
        self.waiting: list[float] = []

    def next_request(self) -> bytes:
        """Return the request, with a mark of its own where a number is to stand."""
        self._number += 1
        asked = self.requests[self._number % len(self.requests)]
        return asked.replace(b"NUMBER", b"%06d" % (self._number % 1_000_000)) if self._marked else asked

    async def dial(self, port: int) -> None:
        """Add one connection."""
        self.dialling += 1
        try:
            _, line = await asyncio.get_running_loop().create_connection(lambda: Line(self), "127.0.0.1", port)
        except OSError:
            self.failed += 1
            return
        finally:
            self.dialling -= 1
        self.lines += 1
        self._free(line)

    def offer(self, due: float, port: int, tasks: set[asyncio.Task[None]]) -> None:
        """Start a request, on a new connection if none is free."""
        self.offered += 1
        while self.idle:
            line = self.idle.pop()
            if not line.transport.is_closing():
                line.ask(due)
                return
        self.waiting.append(due)
        if self.lines + self.dialling < self.lines_max:
            task = asyncio.get_running_loop().create_task(self.dial(port))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        elif len(self.waiting) > self.lines_max:
            self.waiting.pop(0)
            self.unsent += 1

    def answered(self, line: Line, status: bytes) -> None:
        """Count an answer."""
        now = time.monotonic()
        if status.startswith(_OK):
            self.served += 1
            self.served_at.append(now - self.began)
            self.took_s.append(now - line.due)
        elif status == _REFUSED:
            self.refused += 1
        else:
            self.failed += 1
        self._free(line)

    def lost(self, line: Line) -> None:
        """Forget a connection."""
        self.lines -= 1
        if line in self.idle:
            self.idle.remove(line)

    def _free(self, line: Line) -> None:
        if self.waiting:
            line.ask(self.waiting.pop(0))
        else:
            self.idle.append(line)

    def outcome(self) -> dict[str, Any]:
        """Tell how it went."""
        took = sorted(self.took_s)

        def pick(share: float) -> float | None:
            return round(took[min(len(took) - 1, int(len(took) * share))] * 1000, 2) if took else None

        return {
            "offered": self.offered,
            "served": self.served,
            "refused": self.refused,
            "failed": self.failed + self.unsent + len(self.waiting),
            "unsent": self.unsent + len(self.waiting),
            "p50_ms": pick(0.50),
            "p99_ms": pick(0.99),
            "took_ms": [round(each * 1000, 2) for each in took],
            "served_at": [round(at, 3) for at in self.served_at],
        }


def requests_of(caller: dict[str, Any]) -> list[bytes]:
    """Read the requests of a caller: one, or several in turn."""
    return [bytes.fromhex(each) for each in caller.get("requests") or [caller["request"]]]


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    """Offer the load for as long as the plan says, then wait for what is under way."""
    callers = [Caller(c["name"], requests_of(c), c["rps"], c["lines_max"]) for c in plan["callers"]]
    tasks: set[asyncio.Task[None]] = set()
    for caller in callers:
        for _ in range(min(caller.lines_max, 64)):
            await caller.dial(plan["port"])
    began = time.monotonic()
    for caller in callers:
        caller.began = began
    while (now := time.monotonic() - began) < plan["seconds"]:
        for caller in callers:
            while caller.offered < now * caller.rps:
                caller.offer(began + caller.offered / caller.rps, plan["port"], tasks)
        await asyncio.sleep(TICK_S)
    until = time.monotonic() + GRACE_S
    # Answers are counted; nobody tells of the last one.
    unanswered = lambda c: c.offered > c.served + c.refused + c.failed + c.unsent  # noqa: E731
    while time.monotonic() < until and any(map(unanswered, callers)):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return {caller.name: caller.outcome() for caller in callers}


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(run(json.load(sys.stdin)))))
