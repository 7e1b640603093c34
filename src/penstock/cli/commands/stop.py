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


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    running.add_directory(parser)
    parser.add_argument(
        "--timeout", type=asking.duration_ms, default=60_000, metavar="TIME", help="how long to wait (default 1m)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Ask the process to drain by SIGTERM; exit 1 when there is none, 4 when it is not done in time."""
    pid = _holder(args.data_dir)
    if pid is None:
        return running.refuse(args, f"no node is running in {args.data_dir}", code="downstream_unavailable")
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError:
        said = f"the node (process {pid}) belongs to another user: stop it as that user"
        return running.refuse(args, said, code="forbidden")
    until = time.monotonic() + args.timeout / 1000
    while _holder(args.data_dir) is not None:
        if time.monotonic() >= until:
            said = (
                f"the node (process {pid}) is still draining; a second penstock stop, or kill {pid}, does not hurry it"
            )
            return running.refuse(args, said, code="timeout", exit_code=asking.NOT_READY)
        threading.Event().wait(_LOOK_S)
    sys.stdout.write('{"stopped": true}\n' if args.json else "stopped\n")
    return 0


def _holder(data_dir: Path) -> int | None:
    """Return the process that holds the directory's lock; a file that nobody has locked names nobody."""
    import fcntl

    with suppress(OSError, ValueError), (data_dir / "run" / "node.pid").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read())
    return None
