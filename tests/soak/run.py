"""Load a node, kill its tasks, drain and restart it, and see that nothing is lost and nothing grows.

`python -m tests.soak.run MINUTES` prints what it measured and exits with 1 when a promise was broken.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.client import connect
from tests.acceptance.node_process import NodeProcess
from tests.soak import load
from tests.soak.load import Promises, persist
from tests.soak.watch import FDS_GROWTH, RSS_GROWTH_MIB, RSS_SLOPE_MIB_PER_HOUR, Life, running_tasks

KILL_EVERY_S = 2.0
# Tasks of one kind that crash again and again are quarantined or end their service, as they should; the crashes of all
# instances count together. Here each kind rests between two kills.
REST_S = 31.0
P95_S = 2.0
LIVES = 2
SETTLE_S = 60.0
LAST_WORDS = 2000


class Soak:
    """One run: lives of the node one after the other, on one data directory."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds
        self.promises = Promises()
        self.lives: list[Life] = []
        self.killed: dict[str, int] = {}
        self.exits: list[int] = []
        # What a node that did not end well wrote last.
        self.last_words: list[str] = []
        self._rested: dict[str, float] = {}

    async def run(self) -> None:
        """Load the node all the time; it is drained and started again in between."""
        node = await asyncio.to_thread(self._start)
        work: list[asyncio.Task[None]] = []
        try:
            async with connect(self._directory) as client:
                jobs: list[Callable[[], Awaitable[None]]] = [
                    *(partial(load.produce, client, self.promises, f"p{n}") for n in range(2)),
                    *(partial(job, client, self.promises) for job in (load.store, load.issue, load.look)),
                ]
                work = [asyncio.create_task(persist(job, self.promises)) for job in jobs]
                consumer = asyncio.create_task(persist(partial(load.consume, client, self.promises), self.promises))
                for _ in range(LIVES - 1):
                    await self._live(node, self._seconds / LIVES)
                    await asyncio.to_thread(self._drain, node)
                    node = await asyncio.to_thread(self._start)
                await self._live(node, self._seconds / LIVES)
                await _end(work)
                await self._settle()
                await _end([consumer])
        finally:
            await _end(work)
            await asyncio.to_thread(self._drain, node)

    def _start(self) -> NodeProcess:
        node = NodeProcess("--set", "node.chaos=true", data_dir=self._directory)
        node.__enter__()
        self.lives.append(Life(node.process.pid))
        return node

    def _drain(self, node: NodeProcess) -> None:
        if node.process.poll() is None:
            node.signal(signal.SIGTERM)
            code, _, said = node.wait()
            self.exits.append(code)
            if code:
                self.last_words.append(said[-LAST_WORDS:])
        node.__exit__()

    async def _live(self, node: NodeProcess, seconds: float) -> None:
        """Kill a task every two seconds, and sample the process every second."""
        began = time.monotonic()
        next_kill = began + KILL_EVERY_S
        while (now := time.monotonic()) < began + seconds:
            self.lives[-1].sample(now)
            if now >= next_kill:
                await asyncio.to_thread(self._kill_one, node, now)
                next_kill = now + KILL_EVERY_S
            await asyncio.sleep(1.0)

    def _kill_one(self, node: NodeProcess, now: float) -> None:
        tasks = running_tasks(node.ask("admin", "GET", "/inventory", token=True).json())
        self.lives[-1].tasks.append(len(tasks))
        rested = [
            name for name in tasks if now - self._rested.get(_kind(name), -REST_S) >= REST_S and "admin" not in name
        ]
        if rested:
            # Each is killed once before any is killed twice.
            name = min(rested, key=lambda each: (self.killed.get(each, 0), random.random()))
            self._rested[_kind(name)] = now
            if node.kill_task(name.replace("[", "%5B").replace("]", "%5D")).status == 200:
                self.killed[name] = self.killed.get(name, 0) + 1

    async def _settle(self) -> None:
        """Wait until everything that was stored was handled; what is leased by a cut handler comes back first."""
        until = time.monotonic() + SETTLE_S
        while self.promises.lost() and time.monotonic() < until:  # noqa: ASYNC110 - answers of another process
            await asyncio.sleep(0.2)

    def broken(self) -> list[str]:
        """Name every promise that was not kept."""
        promises, found = self.promises, list(self.promises.wrong)
        if promises.lost():
            found.append(f"{len(promises.lost())} stored messages never reached a handler")
        if self.p95() > P95_S:
            found.append(f"p95 of a send is {self.p95():.2f} s")
        if any(self.exits):
            found.append(f"a drain ended with exit codes {self.exits}")
        for number, life in enumerate(self.lives, 1):
            grown = life.growth()
            if grown is not None and grown[0] > FDS_GROWTH:
                found.append(f"life {number}: {grown[0]:.0f} more descriptors")
            if grown is not None and grown[1] > RSS_GROWTH_MIB:
                found.append(f"life {number}: {grown[1]:.0f} MiB more memory")
            lasting = life.lasting_slope()
            if lasting is not None and lasting > RSS_SLOPE_MIB_PER_HOUR:
                found.append(f"life {number}: memory grows by {lasting:.0f} MiB an hour and does not stop")
        return found

    def p95(self) -> float:
        """Return the 95th percentile of a send's seconds."""
        ordered = sorted(self.promises.seconds)
        return ordered[int(len(ordered) * 0.95)] if ordered else float("inf")

    def report(self) -> dict[str, Any]:
        """Sum the run up."""
        promises = self.promises
        return {
            "done": promises.done,
            "stored": len(promises.stored),
            "lost": len(promises.lost()),
            "refused": promises.refused,
            "kills": sum(self.killed.values()),
            "kinds_killed": len({_kind(name) for name in self.killed}),
            "drains": self.exits,
            "last_words": self.last_words,
            "send_p95_ms": round(self.p95() * 1000, 1),
            "growth_fds_mib": [life.growth() for life in self.lives],
            "rss_mib_per_hour": [round(life.slope_mib_per_hour(), 1) for life in self.lives],
            "second_half_mib_per_hour": [life.lasting_slope() for life in self.lives],
            "tasks": [(min(life.tasks), max(life.tasks)) for life in self.lives if life.tasks],
            "broken": self.broken(),
        }


def _kind(task: str) -> str:
    """Return what a task and its other instances are called."""
    return task.partition("[")[0]


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def soak(seconds: float, directory: Path) -> Soak:
    """Run one."""
    run = Soak(directory, seconds)
    asyncio.run(run.run())
    return run


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        ended = soak(float(sys.argv[1]) * 60, Path(path))
    sys.stdout.write(json.dumps(ended.report(), indent=2) + "\n")
    sys.exit(1 if ended.broken() else 0)
