"""What one topic's load does to another's latency: a quiet topic alone, and beside each kind of neighbour.

    python -m benchmarks.interference [--seconds N] [--realtime] [--json]

The quiet topic gets 100 messages a second, each sent, received and acked; a request is timed from when it was due.
Beside it another program loads another topic of the same mailbox, at a pace: plain messages, batches of 100, payloads
of 256 KiB, messages that become dead letters, or lists (topics, peeks, dead letters). The quiet topic runs alone before
each neighbour, so the ratio is against the same minute. Everything is synced. `--realtime` puts all of them above the
other programs of the machine, which `chrt` must be allowed to do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._build import python_build
from benchmarks._charts import BarChart, draw
from benchmarks._report import RESULTS, report
from benchmarks.mailbox import fsync_ms
from benchmarks.tail import ROOT, first, served

QUIET_RATE, QUIET_CONNECTIONS = 100, 4
console = Console(stderr=True)
Row = dict[str, Any]


@dataclass(frozen=True)
class Neighbour:
    """What loads the other topic, and how fast."""

    kind: str
    text: str
    connections: int
    # Rounds a second.
    rate: int
    # There are dead letters before it comes.
    finds_dead: bool = False


NEIGHBOURS = (
    Neighbour("sends", "2,000 messages/s", 32, 2_000),
    Neighbour("batches", "10,000 messages/s in batches of 100", 4, 100),
    Neighbour("big", "40 payloads of 256 KiB/s", 4, 40),
    Neighbour("dead", "1,000 dead letters/s", 16, 1_000),
    Neighbour("scans", "60 lists/s of topics, dead letters, peeks", 4, 20, finds_dead=True),
)


def started(module: str, *words: object, realtime: bool) -> subprocess.Popen[str]:
    """Start a client of the mailbox, on the core that the server does not use."""
    command = [sys.executable, "-m", module, *map(str, words)]
    core = max(os.sched_getaffinity(0))
    return subprocess.Popen(first(command, realtime=realtime, core=core), stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> Row:
    """Wait for a client, and read what it says."""
    said: Row = json.loads(process.communicate(timeout=90)[0])
    return said


def quiet(port: int, seconds: int, *, realtime: bool) -> Row:
    """Measure the quiet topic."""
    words = (port, "cycle", QUIET_CONNECTIONS, seconds, 1, "quiet", QUIET_RATE)
    got = told(started("benchmarks._mailbox.load", *words, realtime=realtime))
    return {name: round(got[name], 2) for name in ("p50_ms", "p99_ms", "refused")}


def beside(neighbour: Neighbour, seconds: int, *, realtime: bool) -> Row:
    """Measure the quiet topic alone and beside a neighbour, on a fresh mailbox."""
    with served(ROOT, realtime=realtime) as (_, port, directory):
        _, sync_p99_ms = fsync_ms(directory)
        if neighbour.finds_dead:
            told(started("benchmarks._interference.noise", port, "dead", 16, 1000, 2, realtime=realtime))
        alone = quiet(port, seconds, realtime=realtime)
        words = (port, neighbour.kind, neighbour.connections, neighbour.rate, seconds + 1)
        noise = started("benchmarks._interference.noise", *words, realtime=realtime)
        there = quiet(port, seconds, realtime=realtime)
        did = told(noise)
    return {
        "kind": neighbour.kind,
        "neighbour": neighbour.text,
        "did_per_s": round(did["per_s"]),
        "did_refused": did["refused"],
        **{f"alone_{name}": value for name, value in alone.items()},
        **there,
        "p50_ratio": round(there["p50_ms"] / max(alone["p50_ms"], 0.001), 2),
        "p99_ratio": round(there["p99_ms"] / max(alone["p99_ms"], 0.001), 2),
        "sync_p99_ms": round(sync_p99_ms, 2),
        "python": python_build(),
        "realtime": realtime,
    }


def plot(rows: list[Row]) -> None:
    """Draw p50 and p99, alone and beside."""
    charts = [
        BarChart(
            f"{mark} of the quiet topic, ms",
            {row["kind"]: _added(row, f"{mark}_ms") for row in rows},
            ("alone", "added by the neighbour"),
        )
        for mark in ("p50", "p99")
    ]
    draw(RESULTS / "interference.svg", f"a quiet topic beside a loud one; Python {python_build()}", list(charts))


def _added(row: Row, name: str) -> tuple[float, float]:
    return row[f"alone_{name}"], round(max(0.0, row[name] - row[f"alone_{name}"]), 2)


def table(rows: list[Row]) -> Table:
    """Lay the results out."""
    made = Table(title=f"a quiet topic ({QUIET_RATE} cycles/s) beside a neighbour; Python {python_build()}")
    columns = ("neighbour", "did_per_s", "alone_p50_ms", "p50_ms", "alone_p99_ms", "p99_ms", "p99_ratio", "sync_p99_ms")
    for name in columns:
        made.add_column(name)
    for row in rows:
        made.add_row(*(str(row[name]) for name in columns))
    return made


def main() -> None:
    """Measure, print, draw, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=int, default=5, help="seconds alone, and beside each neighbour")
    parser.add_argument("--realtime", action="store_true", help="run before the other programs of the machine")
    args = parser.parse_args()
    rows = []
    for number, neighbour in enumerate(NEIGHBOURS, 1):
        rows.append(beside(neighbour, args.seconds, realtime=args.realtime))
        row = rows[-1]
        console.print(f"[{number}/{len(NEIGHBOURS)}] {neighbour.text}: p99 {row['alone_p99_ms']} -> {row['p99_ms']} ms")
    report("interference", rows, table(rows), as_json=args.json)
    plot(rows)


if __name__ == "__main__":
    main()
