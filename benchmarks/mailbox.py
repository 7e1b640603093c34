"""The mailbox: messages a second, server CPU microseconds a message, latency, memory, and its peers in the same run.

    python -m benchmarks.mailbox [--json] [--seconds N] [--against beanstalkd,redis,moto] [--backlog N]

Server and load are processes of their own on the same machine. CPU is user and system time of the server over the
run. A peer that is not installed is skipped with a line. `--backlog` fills one topic and measures memory, throughput
on it, another topic behind it, and the restart.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._mailbox import peers

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "mailbox.json"
TICKS = os.sysconf("SC_CLK_TCK")
console = Console(stderr=True)


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    durability: str
    mode: str
    connections: int = 64
    batch: int = 1


CASES = tuple(
    Case(f"{mode}, batch {batch}, {durability}", durability, mode, 64 if batch == 1 else 8, batch)
    for durability in ("fsync", "os", "memory")
    for mode, batch in (("send", 1), ("cycle", 1), ("send", 100), ("cycle", 100))
)


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Return user and system seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@contextmanager
def server(directory: str, durability: str) -> Iterator[tuple[subprocess.Popen[str], int, float]]:
    """Start a mailbox; yield the process, its port and how long it took to be ready."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks._mailbox.server", str(port), directory, durability]
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise SystemExit("the mailbox did not start")
    try:
        yield process, port, time.perf_counter() - before
    finally:
        process.terminate()
        process.wait(10)


def load(pid: int, port: int, *arguments: object) -> dict[str, Any]:
    """Run the load generator and read what it cost the server."""
    before = cpu_s(pid)
    command = [sys.executable, "-m", "benchmarks._mailbox.load", str(port), *map(str, arguments)]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    result["cpu_us"] = (cpu_s(pid) - before) / max(1, result["count"]) * 1e6
    return {name: round(value, 2) for name, value in result.items()}


def measure(case: Case, seconds: int) -> dict[str, Any]:
    """Run one case on a fresh mailbox."""
    with tempfile.TemporaryDirectory() as directory, server(directory, case.durability) as (process, port, _):
        return {"name": case.name, **load(process.pid, port, case.mode, case.connections, seconds, case.batch)}


def backlog(count: int, seconds: int) -> dict[str, Any]:
    """Fill one topic, then look at memory, throughput, a topic behind it, and the restart after a kill."""
    with tempfile.TemporaryDirectory() as directory:
        with server(directory, "fsync") as (process, port, _):
            empty = load(process.pid, port, "cycle", 64, seconds, 1, "empty")
            load(process.pid, port, "fill", 8, count, 200, "big")
            found = {
                "name": f"backlog {count:,}",
                "rss_mib": round(rss_mib(process.pid), 1),
                "cycle_empty_per_s": empty["per_s"],
                "cycle_full_per_s": load(process.pid, port, "cycle", 64, seconds, 1, "big")["per_s"],
                "other_topic_p99_ms": load(process.pid, port, "cycle", 1, 1, 1, "other")["p99_ms"],
            }
            process.send_signal(signal.SIGKILL)
        with server(directory, "fsync") as (_, _, ready_s):
            return {**found, "restart_s": round(ready_s, 2)}


def against(names: list[str], seconds: int) -> list[dict[str, Any]]:
    """Let the peers that are installed do the same work."""
    rows = []
    for name in names:
        peer = peers.PEERS.get(name)
        if peer is None or not peer.found():
            console.print(f"{name}: skipped, {'not installed' if peer else 'no driver for it'}")
            continue
        with tempfile.TemporaryDirectory() as directory:
            port = free_port()
            process = peers.start(peer, port, directory)
            try:
                peers.prepare(name, port)
                before = cpu_s(process.pid)
                per_s = peers.drive(peer, port, seconds)
                cost = (cpu_s(process.pid) - before) / max(1.0, per_s * seconds) * 1e6
            finally:
                process.terminate()
                process.wait(10)
        rows.append({"name": f"peer: {peer.name}, cycle", "per_s": round(per_s, 1), "cpu_us": round(cost, 1)})
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the results out."""
    out = Table(title="mailbox")
    for column in ("case", "messages/s", "CPU us/message", "p50 ms", "p99 ms"):
        out.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        if "per_s" in row:
            cells = [f"{row.get(name, 0):,.1f}" for name in ("per_s", "cpu_us", "p50_ms", "p99_ms")]
            out.add_row(row["name"], *cells)
        else:
            out.add_row(", ".join(f"{name} {value}" for name, value in row.items()))
    return out


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=int, default=3, help="counted seconds per case")
    parser.add_argument("--against", default="beanstalkd,nats,redis,pgmq,moto", help="comma-separated peers")
    parser.add_argument("--backlog", type=int, default=0, help="also measure with so many messages waiting")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write down."""
    args = options()
    rows = []
    for number, case in enumerate(CASES, 1):
        rows.append(measure(case, args.seconds))
        console.print(
            f"[{number}/{len(CASES)}] {case.name}: {rows[-1]['per_s']:,.0f}/s, {rows[-1]['cpu_us']:.1f} us CPU"
        )
    rows += against([name for name in args.against.split(",") if name], args.seconds)
    if args.backlog:
        rows.append(backlog(args.backlog, args.seconds))
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
