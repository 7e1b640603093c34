"""`penstock version`."""

from __future__ import annotations

import argparse
import sys

from penstock import __version__


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the version, and what it runs on."""
    sys.stdout.write(_facts() if args.json else f"penstock {__version__}\n")
    return 0


def _facts() -> str:
    import json
    import platform

    facts = {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
    return json.dumps(facts) + "\n"
