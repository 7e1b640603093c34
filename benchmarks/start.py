"""Measure how long a node takes until it is ready, and what it costs while nobody asks for anything.

    python -m benchmarks.start [--rounds N] [--idle SECONDS] [--json]

Each round starts `penstock version`, a bare `python -c pass` beside it as the floor, and `penstock up` with every
service twice on one data directory: the first start makes keys and files, the second finds them. The time is that from
the fork to the ready line; the CPU is that of the node's process at that moment, user and system together, which moves
less on a shared machine. Medians are printed. One node then idles for a while: its share of a core, its memory, and how
often its threads were woken in a second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "start.json"
COMMAND = Path(sys.executable).with_name("penstock")
SERVICES = ("passport", "mailbox", "storage", "dht", "interop", "omnigate")
TICKS = os.sysconf("SC_CLK_TCK")
END_S = 30.0
console = Console(stderr=True)


def once(*command: str | Path) -> dict[str, float]:
    """Run a command to its end."""
    before = os.times()
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=END_S)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall_ms": (time.perf_counter() - began) * 1000, "cpu_ms": cpu * 1000}


class StartedNode:
    """A node with every service in a process of its own, on ports that the system chose."""

    def __init__(self, data_dir: Path) -> None:
        """Start it and wait for the ready line."""
        wanted = [word for name in SERVICES for word in ("--set", f"node.{name}=true")]
        command = [COMMAND, "up", "--json", "--ephemeral-ports", "--data-dir", data_dir, *wanted]
        began = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.wall_ms = (time.perf_counter() - began) * 1000
        self.cpu_ms = self.cpu_s() * 1000
        if json.loads(line or "{}").get("event") != "ready":
            raise SystemExit(f"the node did not start: {line}")

    def cpu_s(self) -> float:
        """Return what its process has used, all threads together."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def wakeups(self) -> int:
        """Return how often its threads have gone to sleep, and so were woken."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/status")
        lines = (line for thread in threads for line in thread.read_text().splitlines())
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    def memory_mib(self) -> float:
        """Return what it holds in RAM."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self) -> None:
        """Drain it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(END_S)


def started(data_dir: Path) -> dict[str, float]:
    """Start a node once."""
    node = StartedNode(data_dir)
    node.end()
    return {"wall_ms": node.wall_ms, "cpu_ms": node.cpu_ms}


def modules(of: str) -> int:
    """Count the modules that are loaded once a command's own module is."""
    code = f"import sys, penstock.cli.commands.{of}; print(len(sys.modules))"
    return int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=END_S).stdout)


def idle(data_dir: Path, seconds: float) -> dict[str, float]:
    """Watch a node that nobody asks for anything."""
    node = StartedNode(data_dir)
    time.sleep(2.0)  # what follows a start is over
    cpu, woken, began = node.cpu_s(), node.wakeups(), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    cpu, woken = node.cpu_s() - cpu, node.wakeups() - woken
    found = {"core_percent": 100 * cpu / took, "wakeups_s": woken / took, "memory_mib": node.memory_mib()}
    node.end()
    return found


def measure(rounds: int, idle_s: float) -> dict[str, Any]:
    """Take every figure, in turns, so that a slow moment of the machine is shared by all."""
    taken: dict[str, list[dict[str, float]]] = {"python": [], "version": [], "first start": [], "second start": []}
    for _ in range(rounds):
        taken["python"].append(once(sys.executable, "-c", "pass"))
        taken["version"].append(once(COMMAND, "version"))
        with tempfile.TemporaryDirectory() as folder:
            taken["first start"].append(started(Path(folder)))
            taken["second start"].append(started(Path(folder)))
    figures = {
        name: {kind: round(median(each[kind] for each in found), 1) for kind in ("wall_ms", "cpu_ms")}
        for name, found in taken.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        quiet = idle(Path(folder), idle_s) if idle_s else {}
    return {"start": figures, "modules": {of: modules(of) for of in ("version", "up")}, "idle": quiet}


def show(found: dict[str, Any]) -> None:
    """Print the figures for people."""
    table = Table("start", "wall ms", "CPU ms", "modules", title="median")
    for name, figures in found["start"].items():
        count = found["modules"].get("up" if "start" in name else name, "")
        table.add_row(name, f"{figures['wall_ms']:.0f}", f"{figures['cpu_ms']:.0f}", str(count))
    console.print(table)
    if found["idle"]:
        quiet = found["idle"]
        console.print(
            f"idle: {quiet['core_percent']:.1f} % of a core, {quiet['wakeups_s']:.0f} wake-ups a second, "
            f"{quiet['memory_mib']:.0f} MiB"
        )


def main() -> int:
    """Measure, print and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds to watch an idle node; 0: not at all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", help="accepted as by the other areas; the floor is a bare python")
    args = parser.parse_args()
    found = measure(args.rounds, args.idle)
    show(found)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    if args.json:
        sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
