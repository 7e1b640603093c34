"""`penstock version`."""

from __future__ import annotations

import argparse
import json
import platform
import sys

from penstock import __version__


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the version, and what it runs on."""
    facts = {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
    sys.stdout.write(json.dumps(facts) + "\n" if args.json else f"penstock {__version__}\n")
    return 0
