"""Celery end to end: many tasks, retries, ETA, purge, and a worker killed mid-task. Prints a line for each promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import celery_tasks as tasks

HERE = Path(__file__).parent
COUNT = int(os.environ.get("COUNT", "50"))


def worker() -> subprocess.Popen:
    """Start a worker in a process group of its own."""
    command = [
        sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-c", "2", "-l", "warning", "--without-gossip",
        "--without-mingle", "--without-heartbeat",
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=HERE, start_new_session=True)


def kill(process: subprocess.Popen) -> None:
    """End a worker and its children at once; one that is gone already is none."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def stop(process: subprocess.Popen) -> None:
    """End a worker as Celery asks for it: its main process is told, and ends its children itself.

    A child that is ended while it holds the lock of the pool's pipe leaves the main process waiting for that lock.
    """
    process.terminate()
    process.wait(60)


def lines() -> list[str]:
    """Read what tasks have noted."""
    return tasks.DONE.read_text().splitlines() if tasks.DONE.exists() else []


def until(found, seconds: float = 90.0) -> None:
    """Look until it is true."""
    due = time.monotonic() + seconds
    while not found():
        if time.monotonic() > due:
            raise SystemExit(f"it never came true; seen: {lines()[-20:]}")
        time.sleep(0.1)


def main() -> None:
    """Tell the story; no worker outlives it, or it would hold our output open."""
    workers: list[subprocess.Popen] = []
    try:
        tell(workers)
    finally:
        for each in workers:
            kill(each)


def tell(workers: list[subprocess.Popen]) -> None:
    """Tell the story."""
    for number in range(5):
        tasks.add.delay(900, number)
    purged = tasks.app.control.purge()
    # The SQS transport of kombu adds the same count up ten times.
    assert purged in (5, 50), purged
    print("purge: 5 tasks removed", flush=True)

    first = worker()
    workers.append(first)
    for number in range(COUNT):
        tasks.add.delay(number, 1)
    for number in range(5):
        tasks.flaky.delay(number)
    due = time.time() + 2
    tasks.late.apply_async((1, due), eta=datetime.fromtimestamp(due, timezone.utc))
    tasks.late.apply_async((2, time.time() + 1), countdown=1)
    until(lambda: sum(line.startswith("add") for line in lines()) >= COUNT)
    added = sorted({line for line in lines() if line.startswith("add")})
    assert len(added) == COUNT, added
    assert not any(line.startswith("add 900") for line in lines())
    print(f"tasks: {COUNT} of {COUNT} done", flush=True)
    until(lambda: sum(line.startswith("flaky") for line in lines()) >= 5)
    assert all(line.endswith(" 2") for line in lines() if line.startswith("flaky"))
    print("retries: 5 tasks failed twice each and then succeeded", flush=True)
    until(lambda: sum(line.startswith("late") for line in lines()) >= 2)
    assert all(float(line.split()[2]) >= -0.1 for line in lines() if line.startswith("late"))
    print("eta: 2 tasks ran after their time", flush=True)

    for number in range(4):
        tasks.slow.delay(number, 3.0)
    until(lambda: sum(line.startswith("begun") for line in lines()) >= 2)
    kill(first)
    print(f"killed the worker while it worked on {sum(line.startswith('begun') for line in lines())}", flush=True)
    second = worker()
    workers.append(second)
    until(lambda: {line for line in lines() if line.startswith("slow")} == {f"slow {n}" for n in range(4)})
    print("acks_late: all 4 tasks done by another worker", flush=True)
    stop(second)


main()
