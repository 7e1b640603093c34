"""The tail of a durable send: p50, p99 and p99.9 from a fifth of the capacity to all of it, beside the disk's own sync.

    python -m benchmarks.tail [--before DIRECTORY] [--seconds N] [--realtime] [--json]

The capacity is what 64 connections in a closed loop send. Then the same connections send at a fixed pace, and each send
is timed from when it was due. Before each load the disk is asked what a bare sync of one page takes. `--before` is a
checkout of an earlier commit: its server takes turns with this one, at the same rates. `--realtime` puts server and
client above the other programs of the machine, which `chrt` must be allowed to do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._build import python_build
from benchmarks._charts import Chart, draw
from benchmarks._report import RESULTS, report
from benchmarks.mailbox import cpu_s, free_port, fsync_ms, greet

ROOT = Path(__file__).parent.parent
LOADS = (0.2, 0.4, 0.6, 0.8, 1.0)
CONNECTIONS = 64
MARKS = ("p50_ms", "p99_ms", "p999_ms")
AIM_MS = 5.0
console = Console(stderr=True)
Row = dict[str, Any]


def first(words: list[str], *, realtime: bool, core: int) -> list[str]:
    """Put a command on one core, and with `--realtime` before all others."""
    return [*(["chrt", "-r", "5"] if realtime else []), "taskset", "-c", str(core), *words]


@contextmanager
def served(root: Path, *, realtime: bool) -> Iterator[tuple[int, int, str]]:
    """Start the mailbox of a checkout; yield its process id, its port and its directory."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        words = [sys.executable, "-m", "benchmarks._mailbox.server", str(port), directory, "fsync"]
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
        command = first(words, realtime=realtime, core=cores[0])
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(f"the mailbox of {root} did not start")
        greet(directory)
        try:
            yield process.pid, port, directory
        finally:
            process.terminate()
            process.wait(20)


def sent(root: Path, seconds: int, rate: int, *, realtime: bool) -> Row:
    """Send for so long at so many a second, or as fast as answers come; returns what it took."""
    with served(root, realtime=realtime) as (pid, port, directory):
        middle, worst = fsync_ms(directory)
        before = cpu_s(pid)
        words = [sys.executable, "-m", "benchmarks._mailbox.load", str(port), "send", str(CONNECTIONS), str(seconds)]
        command = first([*words, "1", "bench", str(rate)], realtime=realtime, core=max(os.sched_getaffinity(0)))
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 + seconds)
        got = json.loads(ran.stdout)
        cpu_us = (cpu_s(pid) - before) / max(1, got["count"]) * 1e6
    facts = {name: round(got[name], 2) for name in ("per_s", *MARKS)}
    return {"rate": rate, **facts, "cpu_us": round(cpu_us, 1), "sync_p50_ms": middle, "sync_p99_ms": worst}


def measured(sides: dict[str, Path], seconds: int, *, realtime: bool) -> list[Row]:
    """Find the capacity of this version, and let all sides take turns at each share of it."""
    capacity = sent(ROOT, seconds, 0, realtime=realtime)["per_s"]
    console.print(f"capacity: {capacity:,.0f} sends a second")
    rows = []
    for load in LOADS:
        for side, root in sides.items():
            row = {"side": side, "load": load, **sent(root, seconds, round(load * capacity), realtime=realtime)}
            rows.append({**row, "python": python_build(), "realtime": realtime})
            marks = " / ".join(f"{row[mark]:.2f}" for mark in MARKS)
            console.print(f"{side}, {load:.0%} = {row['rate']:,}/s: {marks} ms, {row['cpu_us']} us CPU")
    return rows


def plot(rows: list[Row]) -> None:
    """Draw a chart for each mark, and the CPU a send."""
    sides = dict.fromkeys(row["side"] for row in rows)

    def curve(side: str, name: str) -> list[tuple[float, float]]:
        return [(100 * row["load"], row[name]) for row in rows if row["side"] == side]

    charts = [
        Chart(
            f"{mark.removesuffix('_ms').replace('999', '99.9')} of a durable send, ms",
            "load, % of the capacity",
            {**{side: curve(side, mark) for side in sides}, "a bare sync, p99": curve("after", "sync_p99_ms")},
            AIM_MS if mark == "p99_ms" else None,
            log=True,
        )
        for mark in MARKS
    ]
    costs = {side: curve(side, "cpu_us") for side in sides}
    title = f"svc-mailbox: the tail of durable sends of 256 B; Python {python_build()}; dashed: the aim"
    draw(RESULTS / "tail.svg", title, [*charts, Chart("server CPU us a send", "load, % of the capacity", costs)])


def table(rows: list[Row]) -> Table:
    """Lay the results out."""
    columns = ("side", "load", "rate", *MARKS, "cpu_us", "sync_p50_ms", "sync_p99_ms")
    made = Table(title=f"durable sends, {CONNECTIONS} connections; Python {python_build()}")
    for name in columns:
        made.add_column(name)
    for row in rows:
        made.add_row(*(f"{row[name]:,.2f}" if isinstance(row[name], float) else str(row[name]) for name in columns))
    return made


def main() -> None:
    """Measure, print, draw, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=int, default=5, help="seconds at each load")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit to compare with")
    parser.add_argument("--realtime", action="store_true", help="run before the other programs of the machine")
    args = parser.parse_args()
    sides = {**({"before": args.before.resolve()} if args.before else {}), "after": ROOT}
    rows = measured(sides, args.seconds, realtime=args.realtime)
    report("tail", rows, table(rows), as_json=args.json)
    plot(rows)


if __name__ == "__main__":
    main()
