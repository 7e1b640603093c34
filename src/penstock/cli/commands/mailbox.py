"""`penstock mailbox`: check the mailbox's files, and repair them while no node runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from penstock.cli import running


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    for name, text, act in (
        ("check", "say what is wrong with the files; change nothing", _check),
        ("repair", "make new files of what can be read, and put the damaged ones aside", _repair),
    ):
        action = actions.add_parser(name, help=text)
        running.add_directory(action)
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(action=act)


def run(args: argparse.Namespace) -> int:
    """Lock the data directory, so that no node starts meanwhile, and check or repair."""
    from penstock.node.data_dir import DataDir, DataDirRefused

    if not (args.data_dir / "mailbox").is_dir():
        return running.refuse(args, f"there is no mailbox in {args.data_dir}", code="not_found")
    home = DataDir(args.data_dir)
    try:
        home.open()
    except DataDirRefused as refused:
        return running.refuse(args, str(refused), code="busy")
    try:
        action: Callable[[argparse.Namespace], int] = args.action
        return action(args)
    finally:
        home.close()


def _check(args: argparse.Namespace) -> int:
    from penstock.services.mailbox.engines.repair import look

    faults = look(args.data_dir / "mailbox")
    if args.json:
        sys.stdout.write(json.dumps({"ok": not faults, "faults": faults}) + "\n")
    else:
        sys.stdout.write("\n".join(faults or ["the mailbox's files are sound"]) + "\n")
    return 1 if faults else 0


def _repair(args: argparse.Namespace) -> int:
    from penstock.services.mailbox.engines.repair import repair

    report = repair(args.data_dir / "mailbox")
    if args.json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        return 0
    lost = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in report.lost)
    lines = [
        f"saved: {report.messages} messages and {report.dead_letters} dead letters",
        *([f"lost: messages {lost}"] if lost else []),
        *([f"lost, and nobody can say how many: {report.lost_unknown}"] if report.lost_unknown else []),
        *([] if lost or report.lost_unknown else ["lost: nothing"]),
        f"records of any kind that could not be read: {report.unreadable}",
        *(f"the name of a topic was lost; its messages are in {name}" for name in report.renamed),
        f"the damaged files are in {report.kept_in}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
