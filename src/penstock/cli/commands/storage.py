"""`penstock storage`: look into the content store's files, and repair its packs while no node runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from penstock.cli import running


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    for name, text, act in (
        ("check", "read every object and say what is wrong; change nothing", _check),
        ("repair", "make new packs of what can be read, and put the damaged ones aside", _repair),
    ):
        action = actions.add_parser(name, help=text)
        running.add_directory(action)
        action.add_argument("--dir", type=Path, help="where the objects are, if `storage.dir` says so")
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(action=act)


def run(args: argparse.Namespace) -> int:
    """Take the data directory, so that no node can, and do what was asked."""
    from penstock.node.data_dir import DataDir, DataDirRefused

    if not _objects(args).is_dir():
        return running.refuse(args, f"there are no objects in {_objects(args)}", code="not_found")
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


def _objects(args: argparse.Namespace) -> Path:
    directory: Path = args.dir or args.data_dir / "objects"
    return directory


def _check(args: argparse.Namespace) -> int:
    from penstock.services.storage.engines.repair import look

    faults = look(_objects(args))
    if args.json:
        sys.stdout.write(json.dumps({"ok": not faults, "faults": faults}) + "\n")
    else:
        sys.stdout.write("\n".join(faults or ["the content store's files are sound"]) + "\n")
    return 1 if faults else 0


def _repair(args: argparse.Namespace) -> int:
    from penstock.services.storage.engines.repair import repair

    report = repair(_objects(args))
    if args.json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        return 0
    if not report.kept_in:
        sys.stdout.write("every pack can be read: there is nothing to repair\n")
        return 0
    lines = [
        f"packs made anew of what could be read: {_numbers(report.rebuilt)}, with {report.saved} objects",
        f"packs that are gone, with everything in them: {_numbers(report.missing)}",
        *(f"lost: {address}" for address in report.lost),
        f"the damaged files are in {report.kept_in}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _numbers(packs: list[int]) -> str:
    return ", ".join(map(str, packs)) or "none"
