"""`penstock audit`: walk the hash chain of what was issued, revoked and rotated."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from penstock.kernel.errors import Integrity


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    verify = actions.add_parser("verify", help="check that no record was changed, taken out or put in")
    verify.add_argument("--data-dir", type=Path, default=Path(".penstock"), help="the node's data directory")
    verify.add_argument("--json", action="store_true", help="print one JSON object")
    verify.set_defaults(action=_verify)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return int(args.action(args))


def _verify(args: argparse.Namespace) -> int:
    from penstock.services.passport.audit import walk

    file = args.data_dir / "audit" / "passport.jsonl"
    try:
        walked = walk(file.read_bytes())
    except OSError as error:
        sys.stderr.write(f"penstock: {file} cannot be read: {error.strerror}\n")
        return 1
    except Integrity as broken:
        if args.json:
            sys.stdout.write(json.dumps({"ok": False, "record": broken.facts["n"], "detail": broken.detail}) + "\n")
        sys.stderr.write(f"penstock: {broken.detail}\n")
        return 1
    said = {"ok": True, "records": walked.records, "head": walked.head}
    sys.stdout.write(f"{json.dumps(said)}\n" if args.json else f"{walked.records} records, head {walked.head}\n")
    return 0
