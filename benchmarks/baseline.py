"""What the machine gives without penstock: a bare echo, a bare sync, a bare SQLite commit, all in one run.

    python -m benchmarks.baseline [--json] [--seconds N]

Every other figure stands on these. The echo is the shortest server there is: bytes in, the same bytes out, 64
connections in a closed loop, on asyncio's own loop and on uvloop; its client is the one that loads the mailbox. The
syncs and commits are made one after the other, as nobody would who can commit together: rows by commit say what that
gains. CPU is user and system time of the process that does it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import apsw
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks._build import python_build
from benchmarks._report import report
from benchmarks.mailbox import free_port, load

PAGE = bytes(4096)
PAYLOAD = bytes(256)
WAL_BYTES = 8 << 20
console = Console(stderr=True)
Row = dict[str, Any]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Echo(asyncio.Protocol):
    """Answers whatever comes with the same few bytes: the load looks for the end of an HTTP answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer."""
        self._transport.write(ANSWER)


async def serve_echo(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


def echo(kind: str, seconds: int) -> Row:
    """Load one bare server."""
    port = free_port()
    words = [sys.executable, "-m", "benchmarks.baseline", "--echo", kind, "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        got = load(process.pid, "load", port, "send", 64, seconds, 1)
    finally:
        process.terminate()
        process.wait(10)
    return {"name": f"echo, {kind}", **{name: got[name] for name in ("per_s", "cpu_us", "p50_ms", "p99_ms")}}


def repeated(name: str, seconds: int, act: Callable[[], object], rows: int = 1) -> Row:
    """Do one thing again and again for so long."""
    act()
    times: list[float] = []
    began_at, cpu_s = time.perf_counter(), time.process_time()
    while time.perf_counter() - began_at < seconds:
        before = time.perf_counter()
        act()
        times.append(time.perf_counter() - before)
    count, took_s, used_s = len(times), time.perf_counter() - began_at, time.process_time() - cpu_s
    times.sort()
    return {
        "name": name,
        "per_s": round(count * rows / took_s),
        "cpu_us": round(used_s / (count * rows) * 1e6, 2),
        "p50_ms": round(1000 * times[count // 2], 3),
        "p99_ms": round(1000 * times[min(count - 1, int(count * 0.99))], 3),
    }


def syncs(directory: Path, seconds: int) -> list[Row]:
    """Write a page in place and sync it, in both ways."""
    rows = []
    with (directory / "page").open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        for name, sync in (("fdatasync", os.fdatasync), ("fsync", os.fsync)):
            rows.append(
                repeated(
                    f"a page, {name}",
                    seconds,
                    lambda sync=sync: (os.pwrite(file.fileno(), PAGE, 0), sync(file.fileno())),  # type: ignore[misc]
                )
            )
    return rows


def commits(directory: Path, seconds: int) -> list[Row]:
    """Commit rows of 256 B to a bare table, every commit synced, its log as large as the mailbox's."""
    db = apsw.Connection(str(directory / "bare.db"))
    for pragma in ("journal_mode = WAL", "synchronous = FULL", f"wal_autocheckpoint = {WAL_BYTES // 4096}"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute("CREATE TABLE row (n INTEGER PRIMARY KEY, body BLOB)")

    def commit(rows: int) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"INSERT INTO row (body) VALUES {','.join(['(?)'] * rows)}", (PAYLOAD,) * rows)
        db.execute("COMMIT")

    made = [
        repeated(f"SQLite commit, rows: {rows}", seconds, lambda rows=rows: commit(rows), rows)  # type: ignore[misc]
        for rows in (1, 16, 64, 256)
    ]
    db.close()
    return made


def table(rows: list[Row]) -> Table:
    """Lay the results out."""
    made = Table(title=f"without penstock; Python {python_build()}")
    for name in ("what", "each second", "CPU us each", "p50 ms", "p99 ms"):
        made.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        made.add_row(row["name"], f"{row['per_s']:,.0f}", *(str(row[name]) for name in ("cpu_us", "p50_ms", "p99_ms")))
    return made


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=int, default=3, help="seconds for each")
    parser.add_argument("--echo", choices=("asyncio", "uvloop"), help="be the bare server (for the benchmark itself)")
    parser.add_argument("--port", type=int, default=0, help="where the bare server listens")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write down."""
    args = options()
    if args.echo:
        (uvloop.run if args.echo == "uvloop" else asyncio.run)(serve_echo(args.port))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        rows = [echo(kind, args.seconds) for kind in ("asyncio", "uvloop")]
        rows += [*syncs(directory, args.seconds), *commits(directory, args.seconds)]
    rows = [{**row, "python": python_build()} for row in rows]
    report("baseline", rows, table(rows), as_json=args.json)


if __name__ == "__main__":
    main()
