"""Dramatiq end to end: many messages, retries, delays, and a worker killed mid-task. Prints a line for each promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import dramatiq

from penstock.transports.dramatiq import PenstockBroker

broker = PenstockBroker(lease_s=5)
dramatiq.set_broker(broker)
DONE = Path(os.environ["DONE_FILE"])
COUNT = int(os.environ.get("COUNT", "50"))
TRIES: dict[int, int] = {}


def note(line: str) -> None:
    """Append a line in one write."""
    with DONE.open("a") as out:
        out.write(line + "\n")


@dramatiq.actor
def add(a, b):
    """Do something small."""
    note(f"add {a} {a + b}")


@dramatiq.actor(max_retries=3, min_backoff=100, max_backoff=200)
def flaky(number):
    """Fail twice, then succeed."""
    TRIES[number] = TRIES.get(number, 0) + 1
    if TRIES[number] < 3:
        raise RuntimeError("not yet")
    note(f"flaky {number}")


@dramatiq.actor(max_retries=0)
def broken():
    """Fail for good."""
    raise RuntimeError("never")


@dramatiq.actor
def slow(number):
    """Take long."""
    note(f"begun {number}")
    time.sleep(3)
    note(f"slow {number}")


def lines():
    """Read what actors have noted."""
    return DONE.read_text().splitlines() if DONE.exists() else []


def until(found, seconds=90.0):
    """Look until it is true."""
    due = time.monotonic() + seconds
    while not found():
        if time.monotonic() > due:
            raise SystemExit(f"it never came true; seen: {lines()[-20:]}")
        time.sleep(0.1)


def worker():
    """Start a worker in a process group of its own."""
    command = [sys.executable, "-m", "dramatiq", "-p", "1", "-t", "4", "dramatiq_story"]
    return subprocess.Popen(command, cwd=Path(__file__).parent, start_new_session=True)


def main():
    """Tell the story; no worker outlives it, or it would hold our output open."""
    workers = []
    try:
        tell(workers)
    finally:
        for each in workers:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)


def tell(workers):
    """Tell the story."""
    for number in range(5):
        add.send(900, number)
    broker.flush("default")
    first = worker()
    workers.append(first)
    for number in range(COUNT):
        add.send(number, 1)
    for number in range(3):
        flaky.send(number)
    broken.send()
    began = time.monotonic()
    add.send_with_options(args=(5000, 1), delay=2000)
    until(lambda: len({line for line in lines() if line.startswith("add")}) >= COUNT + 1)
    assert time.monotonic() - began >= 1.9
    assert not any(line.startswith("add 900 ") for line in lines())
    print(f"messages: {COUNT} of {COUNT} done; flushed ones never came; a delayed one came after its time", flush=True)
    until(lambda: sum(line.startswith("flaky") for line in lines()) == 3)
    print("retries: 3 actors failed twice each and then succeeded", flush=True)
    client = broker._client.get()
    until(lambda: len(client.mailbox.peek(broker.topic("default.XQ"))) == 1)
    print("a message that failed for good lies beside its queue", flush=True)
    for number in range(4):
        slow.send(number)
    until(lambda: sum(line.startswith("begun") for line in lines()) >= 2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(60)
    print("killed the worker mid-task", flush=True)
    second = worker()
    workers.append(second)
    until(lambda: {line for line in lines() if line.startswith("slow")} == {f"slow {n}" for n in range(4)})
    print("all 4 done by another worker", flush=True)
    broker.join("default", timeout=30_000)
    os.killpg(second.pid, signal.SIGTERM)
    second.wait(60)
    print("join: the queue is empty", flush=True)


if __name__ == "__main__":
    main()
