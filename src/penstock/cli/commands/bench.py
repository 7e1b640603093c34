"""`penstock bench`: run the benchmarks of a checkout."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import penstock

_FAILED = 1


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("area", nargs="?", help="one area (default: all of them)")
    parser.add_argument("--against", metavar="NAME", help="compare with an earlier run")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run `scripts/bench` where there is one: the peers it measures against come with the checkout only."""
    script = Path(penstock.__file__).parents[2] / "scripts" / "bench"
    if not script.is_file():
        sys.stderr.write("penstock: benchmarks run in a checkout of the sources; this is an installed package\n")
        return _FAILED
    words = [args.area] if args.area else []
    words += ["--against", args.against] if args.against else []
    words += ["--json"] if args.json else []
    return subprocess.run([str(script), *words], check=False).returncode  # noqa: S603 - our own script
