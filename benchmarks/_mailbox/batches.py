"""Batches of 100 a request, this checkout beside an earlier one: `batches.py [--before DIRECTORY] [--turns N]`.

Both servers live at the same time and are loaded in turns, so that the machine's moods fall on both alike. Printed are
server CPU microseconds a message, user and system apart, of each turn and the least of all turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks._build import python_build
from benchmarks.mailbox import greet
from benchmarks.tail import served

ROOT = Path(__file__).parent.parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def split_cpu(pid: int) -> tuple[float, float]:
    """Return user and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def turn(server: tuple[int, int, str], args: argparse.Namespace) -> tuple[float, float, float]:
    """Load one server once; returns user and system us a message, and messages a second."""
    pid, port, directory = server
    greet(directory)
    user, system = split_cpu(pid)
    words = [port, args.mode, args.connections, args.seconds, args.batch]
    command = [sys.executable, "-m", "benchmarks._mailbox.load", *map(str, words)]
    command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    got = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    user_now, system_now = split_cpu(pid)
    share = 1e6 / max(1, got["count"])
    return (user_now - user) * share, (system_now - system) * share, got["per_s"]


def main() -> None:
    """Take turns and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--mode", default="cycle", choices=("cycle", "send"))
    parser.add_argument("--realtime", action="store_true")
    args = parser.parse_args()
    roots = {**({"before": args.before.resolve()} if args.before else {}), "after": ROOT}
    with ExitStack() as stack:
        servers = {side: stack.enter_context(served(root, realtime=args.realtime)) for side, root in roots.items()}
        best: dict[str, list[tuple[float, float, float]]] = {side: [] for side in roots}
        for number in range(args.turns):
            for side in list(servers)[:: 1 if number % 2 else -1]:
                best[side].append(turn(servers[side], args))
    print(f"{args.mode}, {args.batch} a request; Python {python_build()}")
    for side, turns in best.items():
        each = " ".join(f"{user + system:.1f}" for user, system, _ in turns)
        user, system, per_s = min(turns, key=lambda figures: figures[0] + figures[1])
        print(
            f"{side:7} {user + system:5.1f} us = {user:.1f} user + {system:.1f} system, {per_s:,.0f}/s; turns: {each}"
        )


if __name__ == "__main__":
    main()
