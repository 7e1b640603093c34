"""The content store: durable puts a second, megabytes a second in and out, server CPU an operation, memory.

    python -m benchmarks.storage [--json] [--seconds N] [--rounds N]

Server and load are processes of their own on the same machine, on the same disk as the temporary directory. CPU is
user and system time of the server. Cases of small objects run in rounds, and the round with the least CPU counts: a
slow disk and a busy neighbour make a put cost more. Every row names the Python it was measured with. `--serve PORT
DIRECTORY` is the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from blake3 import blake3
from rich.console import Console
from rich.table import Table

from benchmarks._build import python_build

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "storage.json"
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
SMALL = 4096
LARGE = 64 * MIB
LARGE_CASES = (("put 64 MiB, durable", False), ("get 64 MiB, first time", True), ("get 64 MiB, again", True))
console = Console(stderr=True)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# --- the server


async def serve(port: int, directory: Path) -> None:
    """Serve until told to stop."""
    import signal

    from benchmarks._mailbox.server import listener
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.supervisor import Supervisor
    from penstock.services.storage.config import StorageOptions
    from penstock.services.storage.service import SERVICE, StorageService

    inventory = Inventory(SERVICE)
    options = StorageOptions(listener=listener(port), directory=directory, bytes_max=0)
    service = StorageService(inventory, options)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    sys.setswitchinterval(0.0005)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("ready", flush=True)
    await stop.wait()
    await supervisor.drain()
    await service.close()


class Server:
    """The server's process, and what it has used."""

    def __init__(self, port: int, pid: int) -> None:
        """Watch this one."""
        self.port = port
        self._pid = pid

    def cpu_s(self) -> float:
        """Return user and system seconds so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak_mib(self) -> float:
        """Return the most memory it had."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextmanager
def server() -> Iterator[Server]:
    """Start a store on a fresh directory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.storage", "--serve", str(port), directory]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("the store did not start")
        try:
            yield Server(port, process.pid)
        finally:
            process.terminate()
            process.wait(20)


# --- the load


async def put(streams: Streams, body: bytes, size: int | None = None, status: bytes = b"201") -> None:
    """Put a body, or as many copies of it as `size` asks for, numbered."""
    reader, writer = streams
    writer.write(b"PUT /o HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (size or len(body)))
    for number in range((size or len(body)) // len(body)):
        writer.write(body if size is None else number.to_bytes(8, "big") + body[8:])
        await writer.drain()
    await answer(reader, status)


async def get(streams: Streams, address: str) -> int:
    """Read an object and throw it away; return its size."""
    reader, writer = streams
    writer.write(f"GET /o/{address} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return await answer(reader, b"200")


async def answer(reader: asyncio.StreamReader, status: bytes) -> int:
    """Read an answer; return the length of its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head[9:12].startswith(status):
        raise SystemExit(f"unexpected answer: {head[:60]!r}")
    length = left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while left:
        left -= len(await reader.read(min(left, MIB)))
    return length


async def small_puts(port: int, connections: int, seconds: float, number: int = 0) -> int:
    """Put new small objects on so many connections; return how many. Each round has objects of its own."""
    until = time.perf_counter() + seconds

    async def one(seed: int) -> int:
        streams = await asyncio.open_connection("127.0.0.1", port)
        dice, count = random.Random(f"{connections} {seed} {number}"), 0
        while time.perf_counter() < until:
            await put(streams, dice.randbytes(SMALL))
            count += 1
        streams[1].close()
        return count

    return sum(await asyncio.gather(*map(one, range(connections))))


async def small_gets(port: int, connections: int, seconds: float) -> int:
    """Read a few small objects over and over; return how often."""
    data = [random.Random(each).randbytes(SMALL) for each in range(16)]
    streams = await asyncio.open_connection("127.0.0.1", port)
    for each in data:
        await put(streams, each, status=b"20")
    streams[1].close()
    until = time.perf_counter() + seconds

    async def one(number: int) -> int:
        streams = await asyncio.open_connection("127.0.0.1", port)
        address, count = f"b3:{blake3(data[number % 16]).hexdigest()}", 0
        while time.perf_counter() < until:
            await get(streams, address)
            count += 1
        streams[1].close()
        return count

    return sum(await asyncio.gather(*map(one, range(connections))))


def large_address(block: bytes, size: int) -> str:
    """Name what `put` stores for this block and size."""
    whole = blake3()
    for number in range(size // len(block)):
        whole.update(number.to_bytes(8, "big") + block[8:])
    return f"b3:{whole.hexdigest()}"


async def large(port: int, connections: int, *, read: bool) -> int:
    """Put, or read, one 64 MiB object on each connection at once; return the bytes."""

    async def one(seed: int) -> int:
        block = random.Random(f"large {connections} {seed}").randbytes(MIB)
        streams = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
        try:
            if read:
                return await get(streams, large_address(block, LARGE))
            await put(streams, block, LARGE)
            return LARGE
        finally:
            streams[1].close()

    return sum(await asyncio.gather(*map(one, range(connections))))


# --- the table


def measure(store: Server, name: str, work: Callable[[], Awaitable[int]], unit: str) -> dict[str, Any]:
    """Run one case; `work` returns operations, or bytes when the unit is MB."""
    cpu, began = store.cpu_s(), time.perf_counter()
    done = asyncio.run(_awaited(work))
    took, cost = time.perf_counter() - began, store.cpu_s() - cpu
    amount = done / 1e6 if unit == "MB" else done
    row = {"name": name, "unit": unit, "per_s": round(amount / took, 1), "cpu_us": round(cost / amount * 1e6, 1)}
    row["python"] = python_build()
    console.print(f"{name}: {row['per_s']:,} {unit}/s, {row['cpu_us']} us CPU")
    return row


async def _awaited(work: Callable[[], Awaitable[int]]) -> int:
    return await work()


def small(store: Server, seconds: float, number: int) -> list[dict[str, Any]]:
    """Measure one round of the cases of small objects."""
    rows = [
        measure(
            store,
            f"put 4 KiB, durable, {connections} connection{'s' if connections > 1 else ''}",
            partial(small_puts, store.port, connections, seconds, number),
            "op",
        )
        for connections in (1, 4, 32)
    ]
    name = "get 4 KiB, verified, 32 connections"
    return [*rows, measure(store, name, partial(small_gets, store.port, 32, seconds), "op")]


def run(seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Measure everything on one store."""
    with server() as store:
        port = store.port
        taken = [small(store, seconds, number) for number in range(rounds)]
        rows = [min(case, key=lambda row: float(row["cpu_us"])) for case in zip(*taken, strict=True)]
        before = store.peak_mib()
        for connections in (1, 4):
            rows += [
                measure(store, f"{what}, {connections} at once", partial(large, port, connections, read=read), "MB")
                for what, read in LARGE_CASES
            ]
        peak_mib = round(store.peak_mib() - before, 1)
        rows.append({"name": "memory beyond small objects", "peak_mib": peak_mib, "python": python_build()})
        return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the results out."""
    out = Table(title=f"storage; Python {python_build()}")
    for column in ("case", "rate", "CPU us each"):
        out.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        if "per_s" in row:
            out.add_row(row["name"], f"{row['per_s']:,} {row['unit']}/s", str(row["cpu_us"]))
        else:
            out.add_row(row["name"], f"{row['peak_mib']} MiB", "")
    return out


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=float, default=3, help="counted seconds per case of small objects")
    parser.add_argument("--rounds", type=int, default=2, help="how often each case of small objects is run")
    parser.add_argument("--against", default="", help="taken for the sake of `scripts/bench`: there is no peer here")
    parser.add_argument("--serve", nargs=2, metavar=("PORT", "DIRECTORY"), help="be the server")
    args = parser.parse_args()
    if args.serve:
        uvloop.run(serve(int(args.serve[0]), Path(args.serve[1])))
        return
    rows = run(args.seconds, args.rounds)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
