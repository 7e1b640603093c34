"""Asks before something is gone for good: on a terminal by a word, elsewhere --yes has to be said."""

from __future__ import annotations

import argparse
import sys

from penstock.cli import asking


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def refused(args: argparse.Namespace, what: str) -> int | None:
    """Return None when `what` of a topic may be removed, else the exit code; `what` is a noun with its number."""
    question = f"Remove {what} for good? Write the topic's name to do it: "
    return declined(args, question, args.topic, f"{what} would be gone for good; say --yes to do it")


def declined(args: argparse.Namespace, question: str, word: str, without: str) -> int | None:
    """Return None when --yes was said or `word` is the answer, else the exit code.

    `without` is said where nobody can be asked.
    """
    if args.yes:
        return None
    if not sys.stdin.isatty():
        return asking.refuse(args, without)
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip() == word:
        return None
    sys.stderr.write("nothing was removed\n" if hasattr(args, "topic") else "nothing was changed\n")
    return asking.FAILED
