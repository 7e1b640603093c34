"""The mailbox: messages a second, server CPU microseconds a message, latency, memory, and its peers in the same run.

    python -m benchmarks.mailbox [--json] [--seconds N] [--rounds N] [--backlog [N]]
                                 [--against beanstalkd,nats,redis,pgmq,postgres,moto]

Server and load are separate processes on the same machine, and every peer gets the same client: one thread, one
epoll, on one core, as many connections, the same round. CPU is user and system time of the server and its children over
the run. A peer that is not installed is skipped with a line. All cases run in rounds, in turn, and the best round
of each counts, for the peers as for us. `--backlog` measures nothing else: a curve over 1k, 10k, ... N waiting
messages (1M without a number) of memory, throughput, CPU and restart, written as JSON and drawn as SVG; throughput is
compared with an empty mailbox that takes turns with the full one, second by second.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._build import python_build
from benchmarks._mailbox import peers
from benchmarks._mailbox.plot import Panel, draw
from benchmarks._report import RESULTS

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")
PEERS = "beanstalkd,nats,redis,pgmq,postgres,moto"
RSS_MIB_MAX, RESTART_S_MAX, SLOWER_MAX, OTHER_MS_MAX = 300, 5.0, 0.2, 10.0
console = Console(stderr=True)


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    durability: str
    mode: str
    connections: int = 64
    batch: int = 1
    # Over a Unix socket instead of TCP on loopback.
    unix: bool = False


KINDS = (("send", 1), ("cycle", 1), ("send", 100), ("cycle", 100))
CASES = tuple(
    Case(f"{mode}, batch {batch}, {durability}", durability, mode, 64 if batch == 1 else 8, batch)
    for durability in ("fsync", "os", "memory")
    for mode, batch in KINDS
) + tuple(
    Case(f"{mode}, batch {batch}, fsync, Unix socket", "fsync", mode, 64 if batch == 1 else 8, batch, unix=True)
    for mode, batch in KINDS
)


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Return user and system seconds of a process, its living children, and those it has seen end."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if stat.parent.name == str(pid):
                total += sum(map(int, fields[11:15]))
            elif fields[1] == str(pid):
                total += sum(map(int, fields[11:13]))
    return total / TICKS


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
    greet(directory)
    try:
        yield process, port, time.perf_counter() - before
    finally:
        process.terminate()
        process.wait(20)


def _on_one_core() -> None:
    """Keep the client on one core: woken on the server's, it would push it aside at every answer."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def load(pid: int, module: str, *arguments: object) -> dict[str, Any]:
    """Run a load generator and read what it cost the server."""
    before = cpu_s(pid)
    command = [sys.executable, "-m", f"benchmarks._mailbox.{module}", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=_on_one_core)
    if ran.returncode:
        raise SystemExit(f"{module} failed: {ran.stderr[-400:]}")
    result = json.loads(ran.stdout)
    result["cpu_us"] = (cpu_s(pid) - before) / max(1, result["count"]) * 1e6
    return {name: round(value, 2) for name, value in result.items()}


def measure(case: Case, seconds: int) -> dict[str, Any]:
    """Run one case on a fresh mailbox."""
    with tempfile.TemporaryDirectory() as directory, server(directory, case.durability) as (process, port, _):
        address = Path(directory, "socket") if case.unix else port
        return {
            "name": case.name,
            **load(process.pid, "load", address, case.mode, case.connections, seconds, case.batch),
        }


# --- latency at half load


def fsync_ms(directory: str) -> tuple[float, float]:
    """Return the median and the 99th percentile of syncing one page, on the same disk."""
    times = []
    with (Path(directory) / "probe").open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        for _ in range(300):
            before = time.perf_counter()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - before) * 1000)
    times.sort()
    return times[150], times[297]


def half_load(per_s: float, seconds: int) -> dict[str, Any]:
    """Send at half of what was possible, and compare the latency with one sync."""
    with tempfile.TemporaryDirectory() as directory, server(directory, "fsync") as (process, port, _):
        middle, worst = fsync_ms(directory)
        got = load(process.pid, "load", port, "send", 64, seconds, 1, "bench", max(1, round(per_s / 2)))
    ratio = got["p99_ms"] / middle
    facts = {"fsync_p50_ms": round(middle, 3), "fsync_p99_ms": round(worst, 3), "p99_in_fsyncs": round(ratio, 1)}
    return {"name": "send at half load, fsync", **got, **facts}


# --- peers


def against(names: list[str], seconds: int) -> list[dict[str, Any]]:
    """Let the peers that are installed do the same work."""
    rows = []
    for name in names:
        peer = peers.PEERS.get(name)
        if peer is None or not peer.found():
            console.print(f"{name}: skipped, {'not installed' if peer else 'no driver for it'}")
            continue
        for durable in peer.durable:
            for batch in peer.batches:
                rows.append(measure_peer(name, seconds, batch, durable=durable))
                row = rows[-1]
                console.print(f"{row['name']}: {row['per_s']:,.0f}/s, {row['cpu_us']:.1f} us CPU")
    return rows


def measure_peer(name: str, seconds: int, batch: int, *, durable: bool) -> dict[str, Any]:
    """Run one peer once."""
    peer = peers.PEERS[name]
    os.environ["PEER_DURABLE"] = "1" if durable else "0"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        port = free_port()
        process = peers.start(peer, port, directory, durable=durable)
        try:
            peer.prepare(port)
            got = load(process.pid, "peer_load", name, port, 64 if batch == 1 else 8, seconds, batch)
        finally:
            # Polite to all of them, and quick: PostgreSQL would wait for its clients after a TERM.
            process.send_signal(signal.SIGINT)
            process.wait(20)
    kept = "each write synced" if durable else "RAM or later"
    return {"name": f"peer: {peer.name}, cycle, batch {batch}, {kept}", **got}


# --- backlog


def backlog(count: int, seconds: int) -> dict[str, Any]:
    """Measure with so many messages waiting in one topic, beside an empty mailbox."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as nothing:
        if count:
            subprocess.run([sys.executable, "-m", "benchmarks._mailbox.fill", directory, str(count)], check=True)
        with server(directory, "fsync") as (process, port, _):
            settle(process.pid)
            at_start = rss_mib(process.pid)
            with server(nothing, "fsync") as (other, other_port, _):
                full, empty = in_turn((directory, process.pid, port), (nothing, other.pid, other_port), seconds)
            greet(directory)
            second = load(process.pid, "load", port, "cycle", 1, 1, 1, "other")
            memory = rss_mib(process.pid)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        with server(directory, "fsync") as (_, _, ready_s):
            return {
                "name": f"backlog {count:,}",
                "backlog": count,
                "rss_start_mib": round(at_start, 1),
                "rss_mib": round(memory, 1),
                "cycle_per_s": median(row["per_s"] for row in full),
                "empty_per_s": median(row["per_s"] for row in empty),
                "against_empty": round(median(a["per_s"] / b["per_s"] for a, b in zip(full, empty, strict=True)), 3),
                "cpu_us": median(row["cpu_us"] for row in full),
                "empty_cpu_us": median(row["cpu_us"] for row in empty),
                "other_topic_p50_ms": second["p50_ms"],
                "restart_s": round(ready_s, 2),
            }


def in_turn(
    one: tuple[str, int, int], two: tuple[str, int, int], seconds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Load two mailboxes a second each, one after the other, so often that the machine's moods fall on both alike."""
    rows: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for place in [0, 1, 1, 0] * seconds:
        directory, pid, port = (one, two)[place]
        greet(directory)
        rows[place].append(load(pid, "load", port, "cycle", 64, 1, 1, "big"))
    return rows


def greet(directory: str) -> None:
    """Be a client of the mailbox in this directory from now on."""
    os.environ["PENSTOCK_TOKEN"] = Path(directory, "token").read_text()


def settle(pid: int) -> None:
    """Wait until the check that follows a start is over: it runs once, beside the work, and is not what is measured."""
    time.sleep(1.5)
    before = cpu_s(pid)
    for _ in range(60):
        time.sleep(0.5)
        used, before = cpu_s(pid) - before, cpu_s(pid)
        if used < 0.05:
            return


def growth(largest: int, seconds: int) -> list[dict[str, Any]]:
    """Walk up to the largest backlog."""
    sizes = [0, *(size for size in (1_000, 10_000, 100_000, 1_000_000, 10_000_000) if size < largest), largest]
    rows = []
    for size in sizes:
        rows.append(backlog(size, seconds))
        console.print(f"[{len(rows)}/{len(sizes)}] {rows[-1]}")
    plot(rows)
    return rows


def plot(rows: list[dict[str, Any]]) -> None:
    """Draw the curves beside the figures."""
    panels = [
        Panel(title, [(row["backlog"], row[name]) for row in rows if row["backlog"]], aim)
        for title, name, aim in (
            ("RSS, MiB", "rss_mib", RSS_MIB_MAX),
            ("cycles a second, of an empty mailbox beside it", "against_empty", 1 - SLOWER_MAX),
            ("server CPU us a cycle", "cpu_us", None),
            ("restart to ready, s", "restart_s", RESTART_S_MAX),
        )
    ]
    draw(
        RESULTS / "mailbox-backlog.svg",
        f"mailbox: growth with the backlog (256 B, fsync; dashed: the aim); Python {python_build()}",
        panels,
    )


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Say for the largest backlog whether its aims are met."""
    last = rows[-1]
    return [
        f"{'met   ' if good else 'missed'} {text}"
        for good, text in (
            (last["rss_mib"] < RSS_MIB_MAX, f"RSS {last['rss_mib']} MiB < {RSS_MIB_MAX}"),
            (last["against_empty"] >= 1 - SLOWER_MAX, f"throughput {last['against_empty']:.0%} of an empty queue"),
            (last["restart_s"] < RESTART_S_MAX, f"restart {last['restart_s']} s < {RESTART_S_MAX}"),
            (last["other_topic_p50_ms"] < OTHER_MS_MAX, f"another topic answers in {last['other_topic_p50_ms']} ms"),
        )
    ]


# --- telling


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> Table:
    """Lay the results out."""
    out = Table(title=f"mailbox; Python {python_build()}")
    for title in columns.values():
        out.add_column(title, justify="left" if title == "case" else "right")
    for row in rows:
        cells = (row.get(name, "") for name in columns)
        out.add_row(*(f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in cells))
    return out


COLUMNS = {"name": "case", "per_s": "messages/s", "cpu_us": "CPU us/message", "p50_ms": "p50 ms", "p99_ms": "p99 ms"}
GROWTH = {
    "name": "case", "rss_mib": "RSS MiB", "cycle_per_s": "cycles/s", "against_empty": "of empty",
    "cpu_us": "CPU us/cycle",
    "other_topic_p50_ms": "other topic ms", "restart_s": "restart s",
}  # fmt: skip


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=int, default=3, help="counted seconds per case")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is run; the best round counts")
    parser.add_argument("--against", default=PEERS, help="comma-separated peers")
    parser.add_argument("--only-peers", action="store_true", help="leave our own cases out, and the results file alone")
    parser.add_argument("--backlog", type=int, nargs="?", const=1_000_000, default=0, help="the growth curve alone")
    return parser.parse_args()


def own_cases(seconds: int) -> list[dict[str, Any]]:
    """Measure the mailbox itself."""
    rows = []
    for number, case in enumerate(CASES, 1):
        rows.append(measure(case, seconds))
        row = rows[-1]
        console.print(f"[{number}/{len(CASES)}] {case.name}: {row['per_s']:,.0f}/s, {row['cpu_us']:.1f} us CPU")
    rows.append(half_load(rows[0]["per_s"], seconds))
    console.print(f"at half load p99 is {rows[-1]['p99_in_fsyncs']} syncs ({rows[-1]['fsync_p50_ms']} ms each)")
    return rows


def best(rounds: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Keep each case's best round, ours and the peers' alike: a neighbour on the machine only ever takes away."""
    return [max(each, key=lambda row: row["per_s"]) for each in zip(*rounds, strict=True)]


def main() -> None:
    """Measure, print, write down."""
    args = options()
    RESULTS.mkdir(exist_ok=True)
    if args.backlog:
        rows = growth(args.backlog, args.seconds)
        tell(rows, GROWTH, args, "mailbox-backlog.json")
        console.print("\n".join(verdicts(rows)))
        return
    names = [name for name in args.against.split(",") if name]
    rounds = []
    for number in range(1, args.rounds + 1):
        console.print(f"round {number}/{args.rounds}")
        rounds.append([*([] if args.only_peers else own_cases(args.seconds)), *against(names, args.seconds)])
    rows = best(rounds)
    tell(rows, COLUMNS, args, "" if args.only_peers else "mailbox.json")


def tell(rows: list[dict[str, Any]], columns: dict[str, str], args: argparse.Namespace, file: str) -> None:
    """Print the results and write them down, each with the Python that made it."""
    rows = [{**row, "python": python_build()} for row in rows]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows, columns))
    if file:
        (RESULTS / file).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
