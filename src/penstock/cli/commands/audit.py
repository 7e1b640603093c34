"""`penstock audit`: walk the hash chain of what was issued, revoked and rotated."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from penstock.cli import running
from penstock.kernel.errors import Integrity


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    verify = actions.add_parser("verify", help="check that no record was changed, taken out or put in")
    running.add_directory(verify)
    verify.add_argument("--json", action="store_true", help="print one JSON object")
    verify.add_argument(
        "--interop", type=Path, metavar="FILE", help="check svc-interop's audit, the interop.audit.path"
    )
    verify.set_defaults(action=_verify)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return int(args.action(args))


def _verify(args: argparse.Namespace) -> int:
    from penstock.services.passport.audit import verify
    from penstock.services.passport.store import read_evidence

    if not args.data_dir.is_dir():
        return running.refuse(args, f"there is no data directory {args.data_dir}", code="not_found")
    if args.interop is not None:
        return _verify_interop(args)
    file = args.data_dir / "audit" / "passport.jsonl"
    try:
        known = read_evidence(args.data_dir)
        walked = verify(file, known)
    except OSError as error:
        return running.refuse(args, f"{file} cannot be read: {error.strerror}", code="internal")
    except Integrity as broken:
        return _tell_broken(args, broken)
    signed, kid = (0, "") if known.head is None else (known.head.n, known.head.kid)
    said = {"ok": True, "records": walked.records, "head": walked.head, "signed": signed, "kid": kid}
    shown = f"{walked.records} records, head {walked.head}, {_vouched(walked.records, signed, kid)}"
    shown = shown if walked.records else "nothing written yet"
    sys.stdout.write(f"{json.dumps(said) if args.json else shown}\n")
    return 0


def _tell_broken(args: argparse.Namespace, broken: Integrity) -> int:
    if args.json:
        record = broken.facts.get("n", 0)
        sys.stdout.write(json.dumps({"ok": False, "record": record, "detail": broken.detail}) + "\n")
    sys.stderr.write(f"penstock: {broken.detail}\n")
    return 1


def _verify_interop(args: argparse.Namespace) -> int:
    """Check the bridge's chain, and the signatures in it by the keys that this node's issuer has."""
    from penstock.services.interop.audit import verify_audit
    from penstock.services.interop.service import SERVICE
    from penstock.services.passport.store import read_evidence

    try:
        keys = read_evidence(args.data_dir).keys
        with args.interop.open("rb") as file:
            verified = verify_audit(file, SERVICE, keys)
    except OSError as error:
        return running.refuse(args, f"{args.interop} cannot be read: {error.strerror}", code="internal")
    except Integrity as broken:
        return _tell_broken(args, broken)
    records, head = verified.end
    said = {"ok": True, "records": records, "head": head, "signed": verified.vouched}
    shown = f"{records} records, head {head}, signed up to record {verified.vouched}"
    sys.stdout.write(f"{json.dumps(said) if args.json else shown}\n")
    return 0


def _vouched(records: int, signed: int, kid: str) -> str:
    """Say how much of the chain the issuer's key vouches for."""
    if not signed:
        return "not signed"
    return f"signed by {kid}" if signed >= records else f"signed by {kid} up to record {signed}"
