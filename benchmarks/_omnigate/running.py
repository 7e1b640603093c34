"""Start gateways, upstream and load as processes of their own, each on its core, and read what the gateway used."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks._omnigate import peers

ROOT = Path(__file__).parent.parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Start what is started here on one core, if there are two: a process is born where its parent is."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[core % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def process(command: list[str], core: int, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a server on one core; it is up when it accepts."""
    with on_core(core):
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        wait_until_up(port)
        yield running
    finally:
        running.terminate()
        try:
            running.wait(5)
        except subprocess.TimeoutExpired:
            running.kill()


def wait_until_up(port: int) -> None:
    """Try to connect for ten seconds."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on {port}")


def cpu_s(pid: int) -> float:
    """Return user and system seconds a process and its children have used."""
    used = 0
    for entry in (pid, *_children(pid)):
        fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / TICKS


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def drive(load: dict[str, Any], pid: int) -> dict[str, Any]:
    """Run the load against a gateway and read what it cost the gateway."""
    command = [sys.executable, "-m", "benchmarks._omnigate.load", json.dumps(load)]
    with on_core(1):
        generator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with generator:
        assert generator.stdout is not None
        generator.stdout.readline()
        before = cpu_s(pid)
        result: dict[str, Any] = json.loads(generator.stdout.readline())
        result["cpu_s"] = cpu_s(pid) - before
    return result


@contextmanager
def gateway(name: str, behind: int, directory: Path) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Start a gateway; yield its pid, its port, and the tokens it believes."""
    port = free_port()
    if name == "penstock":
        command = [sys.executable, "-m", "benchmarks._omnigate.gateway", json.dumps({"port": port, "upstream": behind})]
    else:
        command = peers.command(name, port, behind, directory)
    with process(command, 0, port) as running:
        assert running.stdout is not None
        tokens = json.loads(running.stdout.readline()) if name == "penstock" else {}
        yield running.pid, port, tokens


@contextmanager
def upstream() -> Iterator[int]:
    """Start the upstream everybody gets: it parses nothing and always answers the same."""
    port = free_port()
    with process([sys.executable, str(ROOT / "benchmarks/_servers/floor.py"), str(port)], 1, port):
        yield port
