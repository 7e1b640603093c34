"""Webhooks taken a second, beside Debian's webhook in the same run, and streamed puts.

    python -m benchmarks.interop [--json] [--seconds N] [--rounds N] [--against webhook]

A node is a process on one core and has all its services; the load has the other core. Every webhook is a GitHub push of
1 KiB, signed, with a body of its own. The node answers 202 after its mailbox has the event on the disk. Debian's
webhook checks the same signature, answers, and starts /bin/true; nothing of it is durable. CPU is user and system time
of the server with its children that have ended. The fastest round counts, because it was disturbed the least. A put
streams 64 MiB; RSS is the growth of the node over one that had gone before.

Debian's webhook sometimes stops answering under this load. Every wait for the load is bounded; a round in which a
server answered nothing is run again with a fresh one, twice at the most, and then left out with a sentence.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._interop import servers
from benchmarks._interop.servers import Running
from benchmarks._omnigate.running import ROOT, on_core

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "interop.json"
BODY_BYTES = 1024
CONNECTIONS = 64
MIB = 1 << 20
PUT_BYTES = 64 * MIB
PUTS = 4
PEERS = "webhook"
TRIES = 3
# Starting the load, its connections and its warm-up take this long at the most.
WARM_S_MAX = 30.0
console = Console(stderr=True)
Start = Callable[[Path], AbstractContextManager[Running]]


class NoAnswers(Exception):
    """A server answered nothing while it was counted."""


def drive(server: Running, args: argparse.Namespace, case: str, *, good: bool, first: int) -> dict[str, Any]:
    """Send webhooks for a while; return what came back and what the server used."""
    load = {
        "port": server.port, "path": server.path, "secret": servers.SECRET, "bytes": BODY_BYTES, "good": good,
        "connections": CONNECTIONS, "seconds": args.seconds, "first": first,
    }  # fmt: skip
    with on_core(1):
        running = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._interop.load", json.dumps(load)], stdout=subprocess.PIPE, text=True,
            cwd=ROOT,
        )  # fmt: skip
    assert running.stdout is not None
    # The lines below come in time, or the load is killed and they are empty.
    overdue = threading.Timer(WARM_S_MAX + args.seconds, running.kill)
    overdue.start()
    running.stdout.readline()
    before = server.cpu_s()
    told = running.stdout.readline()
    cpu_s = server.cpu_s() - before
    overdue.cancel()
    running.wait(30)
    result = json.loads(told or '{"statuses": {}}')
    served = sum(result["statuses"].values())
    if not served:
        raise NoAnswers
    return {
        "name": server.name,
        "case": case,
        "per_s": round(served / result["elapsed_s"]),
        "cpu_us": round(cpu_s / served * 1e6, 1),
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
        "statuses": result["statuses"],
    }


def webhooks(start: Start, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure good and bad signatures against one server; one that falls silent is started again."""
    for _ in range(TRIES):
        try:
            return webhooks_once(start, args)
        except NoAnswers:
            console.print(f"{start.__name__} answered nothing")
    console.print(f"{start.__name__} answered nothing {TRIES} times: left out of this round")
    return []


def webhooks_once(start: Start, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure good and bad signatures against one server."""
    with tempfile.TemporaryDirectory() as directory, start(Path(directory)) as server:
        cases = (("accepted", True), ("bad signature", False))
        return [drive(server, args, case, good=good, first=number * 10**9) for number, (case, good) in enumerate(cases)]


def puts() -> list[dict[str, Any]]:
    """Stream large objects one after the other; the first one warms up."""
    with tempfile.TemporaryDirectory() as directory, servers.node(Path(directory)) as server, on_core(1):
        put(server, 0)
        rss, cpu, began = server.rss_mib(), server.cpu_s(), time.perf_counter()
        for number in range(1, PUTS + 1):
            put(server, number)
        took_s, megabytes = time.perf_counter() - began, PUTS * PUT_BYTES / 1e6
        growth = server.rss_mib("VmHWM") - rss
        return [
            {
                "name": server.name,
                "case": "put 64 MiB, streamed",
                "mb_per_s": round(megabytes / took_s, 1),
                "cpu_us": round((server.cpu_s() - cpu) / megabytes * 1e6, 1),
                "rss_growth_mib": round(growth, 1),
            }
        ]


def put(server: Running, number: int) -> None:
    """Stream one object whose bytes are its own."""
    piece = number.to_bytes(8, "big") + bytes(256 * 1024 - 8)
    connection = HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.putrequest("POST", "/put")
    connection.putheader("Authorization", f"Bearer {server.token}")
    connection.putheader("Content-Type", "application/octet-stream")
    connection.putheader("Content-Length", str(PUT_BYTES))
    connection.endheaders()
    for _ in range(PUT_BYTES // len(piece)):
        connection.send(piece)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 202:
        raise SystemExit(f"a put was answered {answer.status}")


def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Go through the cases in rounds; keep the least disturbed round of each."""
    starts: list[Start] = [servers.node]
    if "webhook" in args.against.split(","):
        if servers.installed():
            starts.append(servers.peer)
        else:
            console.print("webhook is not installed: skipped")
    measures: list[Callable[[], list[dict[str, Any]]]] = [lambda start=start: webhooks(start, args) for start in starts]
    measures.append(puts)
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for turn in range(args.rounds):
        for row in (row for measure in measures for row in measure()):
            rate = f"{row['per_s']:,}/s" if "per_s" in row else f"{row['mb_per_s']} MB/s"
            console.print(
                f"round {turn + 1}/{args.rounds} {row['name']}, {row['case']}: {rate}, {row['cpu_us']} us CPU"
            )
            key = row["name"], row["case"]
            if key not in best or speed(row) > speed(best[key]):
                best[key] = row
    return list(best.values())


def speed(row: dict[str, Any]) -> float:
    """Return what a round brought: webhooks, or megabytes, a second."""
    found: float = row["per_s"] if "per_s" in row else row["mb_per_s"]
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the results out."""
    out = Table(title=f"GitHub webhooks of {BODY_BYTES} bytes, {CONNECTIONS} connections; puts of 64 MiB")
    for column in ("server", "case", "a second", "CPU us", "p50 ms", "p99 ms", "answers, or RSS growth"):
        out.add_column(column, justify="left" if column in ("server", "case") else "right")
    for row in rows:
        rate = f"{row['per_s']:,}" if "per_s" in row else f"{row['mb_per_s']} MB"
        said = str(row["statuses"]) if "statuses" in row else f"{row['rss_growth_mib']} MiB"
        out.add_row(
            row["name"], row["case"], rate, str(row["cpu_us"]), str(row.get("p50_ms", "")), str(row.get("p99_ms", "")),
            said,
        )  # fmt: skip
    return out


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=float, default=3.0, help="counted seconds per case and round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured")
    parser.add_argument("--against", default=PEERS, help="peers, comma-separated")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write down."""
    args = options()
    rows = compare(args)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))
    if args.against == PEERS:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
