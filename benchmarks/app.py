"""An application: 64 tasks of one Python program, durable sends, then receive and ack, beside redis.asyncio in one run.

    python -m benchmarks.app [--json] [--count N] [--rounds N]

Every program is a process of its own, and so is the server it uses: svc-mailbox with fsync, and Redis with
`appendfsync always`. Reported are messages a second, the program's CPU a message and the server's, and the ratio of
rates against Redis in the same phase. The programs take turns, and the best round of each counts. `plain` is the SDK
with joining left out. Without redis-server or the redis package the peer is skipped with a line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._mailbox.peers import redis_command
from benchmarks.mailbox import RESULTS, cpu_s, free_port, server

CLIENTS = ("penstock", "plain", "redis")
PHASES = ("send", "tasks", "consumer")
console = Console(stderr=True)
Row = dict[str, Any]


def python_build() -> str:
    """Name the Python and how it was built, which moves every figure."""
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"{platform.python_version()}, {'with' if optimized else 'without'} --enable-optimizations"


def redis_parser() -> str:
    """Name the parser that redis.asyncio uses: the one in C, if hiredis is installed, makes it faster."""
    return "hiredis" if importlib.util.find_spec("hiredis") else "Python"


def redis_missing() -> str:
    """Say what the peer lacks; empty when it is there."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed (apt-get install redis-server)"
    return "" if importlib.util.find_spec("redis") else "the Python package redis is not installed"


@contextmanager
def redis_server(directory: str) -> Iterator[tuple[int, int]]:
    """Start Redis with a synced log; yield its process id and port."""
    port = free_port()
    process = subprocess.Popen(redis_command(port, directory, True), stdout=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("redis-server did not start")


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
    with tempfile.TemporaryDirectory() as directory:
        if client == "redis":
            with redis_server(directory) as (pid, port):
                return phases(client, pid, port, count)
        with server(directory, "fsync") as (process, port, _):
            return phases(client, process.pid, port, count, Path(directory, "token").read_text())


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


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--count", type=int, default=10_000, help="messages received by each way; twice as many are sent"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs; the best round counts")
    args = parser.parse_args()
    missing = redis_missing()
    if missing:
        console.print(f"redis: skipped, {missing}")
    clients = [client for client in CLIENTS if client != "redis" or not missing]
    rounds = [[row for client in clients for row in measure(client, args.count)] for _ in range(args.rounds)]
    rows = best(rounds)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "app.json").write_text(json.dumps(rows, indent=2) + "\n")
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))


if __name__ == "__main__":
    main()
