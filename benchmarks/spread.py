"""Does a message cost more where there are many topics? Cycles over 1 to 10,000 topics, in turns with a single one.

    python -m benchmarks.spread [--turns N] [--json]

For each number a mailbox of its own is started and every topic is used once. Then a client sends to one topic after the
other, receives there and acks, for a second, and takes turns with a client that uses one topic alone on the same
mailbox. What is compared is the server's CPU a message, which a busy machine hardly moves.
"""

from __future__ import annotations

import argparse
import tempfile
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._build import python_build
from benchmarks._charts import Chart, draw
from benchmarks._report import RESULTS, report
from benchmarks.mailbox import load, rss_mib, server

TOPICS = (1, 10, 100, 1_000, 10_000)
CONNECTIONS = 64
console = Console(stderr=True)
Row = dict[str, Any]


def measure(topics: int, turns: int) -> Row:
    """Measure so many topics beside one."""
    taken: dict[int, list[Row]] = {0: [], 1: []}
    with tempfile.TemporaryDirectory() as directory, server(directory, "fsync") as (process, port, _):
        load(process.pid, "spread", port, topics, CONNECTIONS, 0)
        for many in [1, 0, 0, 1] * turns:
            taken[many].append(load(process.pid, "spread", port, topics if many else 1, CONNECTIONS, 1))
        memory = rss_mib(process.pid)
    cpu_us = {many: median(row["cpu_us"] for row in rows) for many, rows in taken.items()}
    return {
        "topics": topics,
        "cpu_us": round(cpu_us[1], 1),
        "one_topic_cpu_us": round(cpu_us[0], 1),
        "against_one": round(cpu_us[1] / cpu_us[0], 3),
        "per_s": round(median(row["per_s"] for row in taken[1])),
        "rss_mib": round(memory, 1),
        "python": python_build(),
    }


def plot(rows: list[Row]) -> None:
    """Draw the growth."""
    names = {"over all topics": "cpu_us", "one topic, in turns": "one_topic_cpu_us"}
    costs = {text: [(row["topics"], row[name]) for row in rows] for text, name in names.items()}
    memory = {"RSS": [(row["topics"], row["rss_mib"]) for row in rows]}
    charts = [Chart("server CPU us a cycle", "topics", costs), Chart("memory, MiB", "topics", memory)]
    draw(RESULTS / "spread.svg", f"svc-mailbox: growth with the topics; Python {python_build()}", list(charts))


def table(rows: list[Row]) -> Table:
    """Show a row for each number of topics."""
    made = Table(*rows[0], title=f"cycles over many topics; Python {python_build()}")
    for row in rows:
        made.add_row(*map(str, row.values()))
    return made


def main() -> None:
    """Measure, print, draw, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--turns", type=int, default=2, help="how often four seconds are measured for each number")
    args = parser.parse_args()
    rows = []
    for topics in TOPICS:
        rows.append(measure(topics, args.turns))
        console.print(f"{topics:,} topics: {rows[-1]}")
    report("spread", rows, table(rows), as_json=args.json)
    plot(rows)


if __name__ == "__main__":
    main()
