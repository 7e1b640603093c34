"""`penstock config`: show the effective settings with their origin, check a file, reload a running node."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from penstock.cli import running
from penstock.cli import settings as options


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    show = actions.add_parser("show", help="print every key, its value and where it came from")
    options.add(show)
    show.add_argument("--defaults", action="store_true", help="as it would be with nothing set")
    show.add_argument("--json", action="store_true", help="print one JSON list")
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
    from penstock.node.services import schema

    settings = options.load_or_explain(schema(), options.sources(args), as_json=args.json)
    if settings is None:
        return options.BAD_CONFIG
    rows = settings.show(defaults=args.defaults)
    if args.json:
        shown = [{"key": row.key, "value": row.value, "origin": row.origin, "default": row.default} for row in rows]
        sys.stdout.write(json.dumps(shown) + "\n")
    else:
        width = max(len(row.key) for row in rows)
        for row in rows:
            value = "-" if row.value is None else row.value if isinstance(row.value, str) else json.dumps(row.value)
            sys.stdout.write(f"{row.key:<{width}} = {value}  ({row.origin})\n")
    return 0


def _check(args: argparse.Namespace) -> int:
    from penstock.config import ConfigFaults, Sources, load
    from penstock.node.services import schema

    try:
        load(schema(), Sources(file=args.file))
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
    sys.stdout.write("" if done["changed"] or done["held"] or done["failed"] else "nothing changed\n")
    return 1 if done["failed"] else 0
