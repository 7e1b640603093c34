"""Asks before something is gone for good: on a terminal by the topic's name, elsewhere --yes has to be said."""

from __future__ import annotations

import argparse
import sys

from penstock.cli import asking


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def refused(args: argparse.Namespace, what: str) -> int | None:
    """Return None when `what` may be removed, else the exit code; `what` is a noun with its number."""
    if args.yes:
        return None
    if not sys.stdin.isatty():
        return asking.refuse(args, f"{what} would be gone for good; say --yes to do it")
    sys.stderr.write(f"Remove {what} for good? Write the topic's name to do it: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() == args.topic:
        return None
    sys.stderr.write("nothing was removed\n")
    return asking.FAILED
