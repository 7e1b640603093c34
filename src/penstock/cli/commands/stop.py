"""`penstock stop`: drain a node of this machine and wait until it has ended."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.cli import asking, running
from penstock.cli.endings import ending_in_words, read_ending

UNCLEAN: Final = 5
"""It has ended, but not everything that was under way was finished."""

_LOOK_S = 0.1
_UNTOLD: Final[dict[str, Any]] = {"clean": None, "cut": [], "reason": None, "limit_s": None}
_KILLED: Final = "it was killed or has crashed. What it had acknowledged is in the data directory."
_AGAIN: Final = "Unsettled messages are delivered again; node.drain_deadline and those of the services give more time."
_NODE = "the node"
_NOT_OURS: Final = "Stop the node as the user who runs it, on its own machine."
_NEAR_ONLY: Final = "PENSTOCK_URL and contexts do not count here: stop works on the node's own machine only."


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    running.add_directory(parser)
    parser.add_argument(
        "--timeout", type=asking.duration_ms, default=60_000, metavar="TIME", help="how long to wait (default 1m)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Ask what runs there to drain by SIGTERM; exit 1 when nothing does, 4 when it is late, 5 when work was cut."""
    try:
        holders = _holders(args.data_dir)
    except PermissionError:
        said = f"the data directory {args.data_dir} belongs to another user: permission denied. {_NOT_OURS}"
        return running.refuse(args, said, code="forbidden")
    if not holders:
        return running.refuse(args, _nobody(args.data_dir), code="downstream_unavailable")
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
    return _say(args, holders, {pid: ending_of(args.data_dir, pid, name) for pid, name in holders.items()})


def _nobody(data_dir: Path) -> str:
    """Say that nothing runs there; somebody who works with a node elsewhere is told that it cannot be stopped so."""
    none = f"no node is running in {data_dir.absolute()}: name another by --data-dir (or PENSTOCK_DATA_DIR)"
    elsewhere = os.environ.get("PENSTOCK_URL") or os.environ.get("PENSTOCK_CONTEXT")
    return f"{none}. {_NEAR_ONLY}" if elsewhere else none


def _say(args: argparse.Namespace, holders: dict[int, str], endings: dict[int, dict[str, Any] | None]) -> int:
    """Say that it has ended, and what became of work that was under way; exit 5 when the drain was not clean."""
    clean = all(ending is not None and ending["clean"] for ending in endings.values())
    if args.json:
        told = [{"name": holders[pid], "pid": pid, **(ending or _UNTOLD)} for pid, ending in endings.items()]
        sys.stdout.write(json.dumps({"stopped": True, "clean": clean, "endings": told}) + "\n")
    else:
        alone = sorted(name for name in holders.values() if name != _NODE)
        sys.stdout.write(f"stopped {', '.join(alone)}\n" if alone else "stopped\n")
    for pid, ending in endings.items():
        if ending is None:
            sys.stderr.write(f"penstock: {holders[pid]} (process {pid}) has ended without saying how: {_KILLED}\n")
        elif not ending["clean"]:
            sys.stderr.write(f"penstock: {holders[pid]} did not drain cleanly; {ending_in_words(ending)}. {_AGAIN}\n")
    return 0 if clean else UNCLEAN


def ending_of(data_dir: Path, pid: int, name: str) -> dict[str, Any] | None:
    """Read how a process said that it ended; None where it has not, or where what it wrote is damaged."""
    file = data_dir / "run" / f"{'node' if name == _NODE else name.removeprefix('svc-')}.ending"
    with suppress(OSError, ValueError, TypeError, KeyError):
        told = json.loads(file.read_text())
        if isinstance(told, dict) and told["pid"] == pid:
            return read_ending(told)
    return None


def _holders(data_dir: Path) -> dict[int, str]:
    """Return the processes that hold the directory, or parts of it as services that run alone, by what they run."""
    import fcntl

    found: dict[int, str] = {}
    try:
        found_files = list((data_dir / "run").iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    for pid_file in (file for file in found_files if file.suffix == ".pid"):
        with suppress(OSError, ValueError), pid_file.open() as file:
            try:
                # A file that nobody has locked names nobody. A service alone shares the node's lock.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found[int(file.read())] = _NODE if pid_file.stem == "node" else f"svc-{pid_file.stem}"
    return found
