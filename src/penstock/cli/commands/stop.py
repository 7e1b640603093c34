"""`penstock stop`: drain a node of this machine and wait until it has ended."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from penstock.cli import asking, running

_LOOK_S = 0.1
_NODE = "the node"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    running.add_directory(parser)
    parser.add_argument(
        "--timeout", type=asking.duration_ms, default=60_000, metavar="TIME", help="how long to wait (default 1m)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Ask what runs there to drain by SIGTERM; exit 1 when nothing does, 4 when it is not done in time."""
    holders = _holders(args.data_dir)
    if not holders:
        return running.refuse(args, f"no node is running in {args.data_dir}", code="downstream_unavailable")
    for pid, name in holders.items():
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            said = f"{name} (process {pid}) belongs to another user: stop it as that user"
            return running.refuse(args, said, code="forbidden")
    until = time.monotonic() + args.timeout / 1000
    while left := {pid: name for pid, name in _holders(args.data_dir).items() if pid in holders}:
        if time.monotonic() >= until:
            named = ", ".join(f"{name} (process {pid})" for pid, name in left.items())
            said = f"{named} is still draining; a second penstock stop, or another SIGTERM, does not hurry it"
            return running.refuse(args, said, code="timeout", exit_code=asking.NOT_READY)
        threading.Event().wait(_LOOK_S)
    alone = sorted(name for name in holders.values() if name != _NODE)
    text = f"stopped {', '.join(alone)}\n" if alone else "stopped\n"
    sys.stdout.write('{"stopped": true}\n' if args.json else text)
    return 0


def _holders(data_dir: Path) -> dict[int, str]:
    """Return the processes that hold the directory, or parts of it as services that run alone, by what they run."""
    import fcntl

    found: dict[int, str] = {}
    for pid_file in (data_dir / "run").glob("*.pid"):
        with suppress(OSError, ValueError), pid_file.open() as file:
            try:
                # A file that nobody has locked names nobody. A service alone shares the node's lock.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found[int(file.read())] = _NODE if pid_file.stem == "node" else f"svc-{pid_file.stem}"
    return found
