"""An application: 64 tasks of one Python program, durable sends, then receive and ack, beside its peers in one run.

    python -m benchmarks.app [--json] [--count N] [--rounds N] [--against redis,nats,postgres,rabbitmq]

Every program is a process of its own, and so is the server it uses: svc-mailbox with fsync; Redis streams with
`appendfsync always`; NATS JetStream with `sync_interval: always`; a PostgreSQL table with SKIP LOCKED; a durable queue
of RabbitMQ with confirms. Reported are messages a second, the program's CPU a message and the server's, and the ratio
of rates against Redis in the same phase. The programs take turns, and the best round of each counts. `plain` is the
SDK with joining left out. A peer that is not installed is skipped with a line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._app.servers import missing, peer_server
from benchmarks._build import python_build
from benchmarks._charts import BarChart, Chart, draw
from benchmarks._report import RESULTS, report
from benchmarks.mailbox import cpu_s, server

PEERS = ("redis", "nats", "postgres", "rabbitmq")
PHASES = ("send", "tasks", "consumer")
console = Console(stderr=True)
Row = dict[str, Any]


def redis_parser() -> str:
    """Name the parser that redis.asyncio uses: the one in C, if hiredis is installed, makes it faster."""
    return "hiredis" if importlib.util.find_spec("hiredis") else "Python"


def program(pid: int, *words: object) -> Row:
    """Run one phase of a program, and read what it cost the server."""
    before = cpu_s(pid)
    command = [sys.executable, "-m", "benchmarks._app.program", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ran.returncode:
        raise SystemExit(f"{words[:2]} failed: {ran.stderr[-800:]}")
    return {**json.loads(ran.stdout), "server_us": (cpu_s(pid) - before) / int(str(words[3])) * 1e6}


def phases(client: str, pid: int, port: int, count: int, token: str = "") -> list[Row]:
    """Send twice as many as are received by each of the two ways, so that nothing is left at the end."""
    rows = []
    for phase in PHASES:
        many = 2 * count if phase == "send" else count
        rows.append({"client": client, "phase": phase, **program(pid, client, phase, port, many, token)})
        row = rows[-1]
        console.print(f"{client} {phase}: {row['per_s']:,.0f}/s, {row['client_us']:.0f} + {row['server_us']:.0f} us")
    return rows


def measure(client: str, count: int) -> list[Row]:
    """Run all phases of one program on a fresh server."""
    if client in PEERS:
        with peer_server(client) as (pid, port):
            return phases(client, pid, port, count)
    with tempfile.TemporaryDirectory() as directory, server(directory, "fsync") as (process, port, _):
        return phases(client, process.pid, port, count, Path(directory, "token").read_text())


def installed(wanted: list[str]) -> list[str]:
    """Keep the peers that are here, and say what the others lack."""
    found = []
    for client in filter(None, wanted):
        lacks = missing(client) if client in PEERS else "there is no driver for it"
        if lacks:
            console.print(f"{client}: skipped, {lacks}")
        else:
            found.append(client)
    return found


def best(rounds: list[list[Row]]) -> list[Row]:
    """Keep the best round of each, and compare with Redis in the same phase."""
    rows = [max(each, key=lambda row: row["per_s"]) for each in zip(*rounds, strict=True)]
    peer = {row["phase"]: row["per_s"] for row in rows if row["client"] == "redis"}
    python = python_build()
    return [
        {**{name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()},
         "of_redis": round(row["per_s"] / peer[row["phase"]], 2) if peer else None, "python": python,
         "redis_parser": redis_parser()}
        for row in rows
    ]  # fmt: skip


def table(rows: list[Row]) -> Table:
    """Show the results."""
    made = Table(title=f"64 tasks of one program, durable; Python {python_build()}; redis parser: {redis_parser()}")
    for name in ("client", "phase", "messages/s", "of redis", "program us", "server us"):
        made.add_column(name)
    for row in rows:
        numbers = (f"{row['per_s']:,.0f}", f"{row['of_redis']}", f"{row['client_us']:.0f}", f"{row['server_us']:.0f}")
        made.add_row(row["client"], row["phase"], *numbers)
    return made


def plot(rows: list[Row]) -> None:
    """Draw the rates of each phase, and where the CPU of the sends goes."""
    rates: list[Chart | BarChart] = [
        BarChart(f"{phase}: messages/s", {row["client"]: (row["per_s"],) for row in rows if row["phase"] == phase})
        for phase in PHASES
    ]
    costs: dict[str, tuple[float, ...]] = {
        row["client"]: (row["client_us"], row["server_us"]) for row in rows if row["phase"] == "send"
    }
    parts = BarChart("send: CPU us a message", costs, ("program", "server"))
    draw(RESULTS / "app.svg", f"64 tasks of one program, durable; Python {python_build()}", [*rates, parts])


def main() -> None:
    """Measure, print, draw, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--count", type=int, default=10_000, help="messages received by each way; twice as many are sent"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs; the best round counts")
    parser.add_argument("--against", default=",".join(PEERS), help="peers, comma-separated")
    args = parser.parse_args()
    clients = ["penstock", "plain", *installed(args.against.split(","))]
    rounds = [[row for client in clients for row in measure(client, args.count)] for _ in range(args.rounds)]
    rows = best(rounds)
    report("app", rows, table(rows), as_json=args.json)
    plot(rows)


if __name__ == "__main__":
    main()
