"""`penstock config`: show the effective settings with their origin, check a file, reload a running node."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import running
from penstock.cli import settings as options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import SettingRow


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    show = actions.add_parser(
        "show", help="print every key as up with these options would have it; a running node is not asked"
    )
    options.add(show)
    show.add_argument("--defaults", action="store_true", help="as it would be with nothing set")
    show.add_argument("--changed", action="store_true", help="only what differs from its default")
    show.add_argument("--json", action="store_true", help="print one JSON list")
    node = show.add_argument_group("a running node instead of a file")
    node.add_argument("--running", action="store_true", help="what the node of --data-dir runs with")
    running.add_elsewhere(node)
    show.set_defaults(action=_show)
    check = actions.add_parser("check", help="say everything that is wrong with a file")
    check.add_argument("file", type=Path)
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(action=_check)
    reload_ = actions.add_parser("reload", help="have a running node read its configuration again")
    running.add(reload_)
    reload_.add_argument("--json", action="store_true", help="print one JSON object")
    reload_.set_defaults(action=_reload)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return int(args.action(args))


def _show(args: argparse.Namespace) -> int:
    if args.running or args.url or args.context:
        return _show_running(args)
    from penstock.node.services import schema

    settings = options.load_or_explain(schema(), options.sources(args), as_json=args.json)
    if settings is None:
        return options.BAD_CONFIG
    _print(args, settings.show(defaults=args.defaults))
    return 0


def _show_running(args: argparse.Namespace) -> int:
    from penstock.config import SettingRow

    if args.config or args.set or args.defaults:
        said = "--running, --url and --context ask a node; --config, --set and --defaults read files. Give one kind."
        return running.refuse(args, said, code="malformed", exit_code=options.BAD_CONFIG)
    told = running.fetch(args, "GET", "/v1/node/config")
    if told is None:
        return 1
    _print(args, [SettingRow(**row) for row in told["settings"]])
    sys.stderr.writelines(f"penstock: {line}\n" for line in _left_undone(told))
    return 0


def _left_undone(told: dict[str, Any]) -> list[str]:
    """Say how the node's settings differ from what its sources said at the last reload."""
    return [
        *(f"{each['key']}: {each['old']} -> {each['new']} waits for a restart" for each in told["held"]),
        *(f"not applied, the old stays: {reason}" for reason in told["failed"]),
        *(f"the last reload was refused: {fault}" for fault in told["faults"]),
    ]


def _print(args: argparse.Namespace, rows: Sequence[SettingRow]) -> None:
    rows = [row for row in rows if row.changed or not args.changed]
    if args.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows]) + "\n")
        return
    from penstock.cli.payloads import printable

    width = max((len(row.key) for row in rows), default=0)
    for row in rows:
        sys.stdout.write(f"{row.key:<{width}} = {printable(row.text())}  ({printable(row.origin)})\n")


def _check(args: argparse.Namespace) -> int:
    from penstock.config import ConfigFaults, Sources, load
    from penstock.node.services import schema

    try:
        load(schema(), Sources(file=args.file, environ=dict(os.environ)))
    except ConfigFaults as faults:
        if args.json:
            sys.stdout.write(json.dumps({"ok": False, "faults": [fault.plain() for fault in faults.faults]}) + "\n")
        sys.stderr.write(f"{faults}\n")
        return options.BAD_CONFIG
    sys.stdout.write(json.dumps({"ok": True, "faults": []}) + "\n" if args.json else f"{args.file} is fine\n")
    return 0


def _reload(args: argparse.Namespace) -> int:
    done = running.fetch(args, "POST", "/v1/node/reload")
    if done is None:
        return 1
    if args.json:
        sys.stdout.write(json.dumps(done) + "\n")
        return 0
    for change in done["changed"]:
        sys.stdout.write(f"{change['key']}: {change['old']} -> {change['new']}\n")
    for change in done["held"]:
        sys.stdout.write(f"{change['key']}: waits for a restart\n")
    for reason in done["failed"]:
        sys.stderr.write(f"penstock: not applied, the old stays: {reason}\n")
    sys.stdout.write(
        ""
        if done["changed"] or done["held"] or done["failed"]
        else "no setting has changed; certificates were read again\n"
    )
    return 1 if done["failed"] else 0
