"""`penstock weave`: try every schedule of a small asyncio program."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.weave import WeaveReport
    from penstock.weave.search import Progress

_BAD_USE = 2
_EXIT = {"holds": 0, "fails": 1, "cut": 3}
_SEED = "PYTHONHASHSEED"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("program", metavar="FILE.py::NAME", help="an async function without arguments")
    parser.add_argument(
        "--mode",
        choices=("any", "fifo", "chaos"),
        default="any",
        help="any: any ready task may be next (default); fifo: asyncio's own orders; chaos: callbacks overtake too",
    )
    parser.add_argument("--strategy", default="auto", help="auto (default), hash, dpor, delay:K or random:N")
    parser.add_argument("--max-schedules", type=int, metavar="N", help="give up after so many schedules")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="give up after so long (default 60)")
    parser.add_argument("--schedule", metavar="TOKEN", help="run this one schedule again, with its output")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes to search with (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Explore, or replay one schedule; exit 0 holds, 1 fails, 2 bad arguments, 3 cut."""
    if os.environ.get(_SEED) != "0":
        return _with_fixed_hashes(args)
    from penstock.weave import BadOption, BadToken
    from penstock.weave.load import BadProgram, load_program
    from penstock.weave.search import ExploreSettings

    try:
        # Judged before the program is loaded, which may take as long.
        ExploreSettings(seconds=args.seconds, jobs=args.jobs)
        report = _report(args, load_program(args.program, args.seconds))
    except (BadOption, BadProgram, BadToken) as bad:
        return _refuse(str(bad), as_json=args.json)
    sys.stdout.write(f"{report.to_json() if args.json else report}\n")
    return _EXIT[report.verdict]


def _report(args: argparse.Namespace, program: Callable[[], Coroutine[Any, Any, object]]) -> WeaveReport:
    from penstock.weave import explore, replay

    if args.schedule:
        return replay(program, args.schedule)
    options: dict[str, Any] = {"mode": args.mode, "strategy": args.strategy, "seconds": args.seconds, "jobs": args.jobs}
    if args.max_schedules is not None:
        options["schedules_max"] = args.max_schedules
    if args.json or not sys.stderr.isatty():
        return explore(program, **options)
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from penstock.cli.console import Console

    console = Console(file=sys.stderr)
    with Bar(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        line = bar.add_task("exploring", total=None)

        def show(progress: Progress) -> None:
            told = f"{progress.schedules} schedules, {progress.states} states, {progress.waiting} branches to go"
            bar.update(line, description=told)

        return explore(program, **options, progress=show)


def _with_fixed_hashes(args: argparse.Namespace) -> int:
    """Run again with fixed string hashes: else sets of strings differ in each process, and a token would not fit."""
    words = [args.program, "--mode", args.mode, "--strategy", args.strategy, "--seconds", str(args.seconds)]
    words += ["--jobs", str(args.jobs)]
    words += ["--max-schedules", str(args.max_schedules)] if args.max_schedules is not None else []
    words += ["--schedule", args.schedule] if args.schedule else []
    words += ["--json"] if args.json else []
    command = [sys.executable, "-m", "penstock", "weave", *words]
    return subprocess.run(command, env={**os.environ, _SEED: "0"}, check=False).returncode  # noqa: S603 ourselves again


def _refuse(sentence: str, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(json.dumps({"error": {"code": "malformed", "detail": sentence}}) + "\n")
    sys.stderr.write(f"penstock: {sentence}\n")
    return _BAD_USE
