"""`penstock inventory`: the live inventory of a running node, and the generated tables."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import running
from penstock.kernel.clock import SYSTEM

if TYPE_CHECKING:
    from penstock.node.concurrency import Review

FAILED = 1


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    running.add(parser)
    parser.set_defaults(action=_show)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    actions = parser.add_subparsers(metavar="action")
    docs = actions.add_parser("docs", help="write docs/_generated from the code")
    docs.add_argument("--check", action="store_true", help="write nothing; fail when something is stale")
    docs.add_argument("--reviewed", metavar="SERVICE", help="note that you reviewed a service's model today")
    docs.add_argument("--dir", type=Path, default=Path("docs"), help="the docs folder")
    docs.set_defaults(action=_docs)


def run(args: argparse.Namespace) -> int:
    """Show the inventory, or write the tables."""
    code = args.action(args)
    return int(code)


def _show(args: argparse.Namespace) -> int:
    tables = running.fetch(args, "GET", "/v1/node/inventory")
    if tables is None:
        return FAILED
    if args.json:
        sys.stdout.write(json.dumps(tables) + "\n")
        return 0
    from penstock.cli.tables import inventory

    inventory(tables)
    return 0


def _docs(args: argparse.Namespace) -> int:
    from penstock.cli.sdk_signatures import signatures_page
    from penstock.config import Sources, load
    from penstock.node.services import schema
    from penstock.node.tables import pages

    # Fixed where a default depends on the machine: the tables must not.
    sources = Sources(sets=("node.echo=true", "node.body_bytes=128MiB", "passport.workers=2"))
    reviews = _reviews(args.dir / "reviews.toml")
    wanted = {**pages(load(schema(), sources), sources, reviews), "sdk.md": signatures_page()}
    if args.reviewed:
        return _note_review(args, wanted)
    faults = _outdated_reviews(wanted, reviews)
    if args.check:
        faults += _stale(args.dir / "_generated", wanted)
    else:
        _write(args.dir / "_generated", wanted)
    for fault in faults:
        sys.stderr.write(f"penstock: {fault}\n")
    return FAILED if faults else 0


def _write(folder: Path, wanted: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    for file in folder.glob("*.md"):
        if file.name not in wanted:
            file.unlink()


def _stale(folder: Path, wanted: dict[str, str]) -> list[str]:
    present = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}
    names = sorted(name for name in {*wanted, *present} if wanted.get(name) != present.get(name))
    return [f"{folder / name} is stale; run scripts/docs" for name in names]


def _reviews(file: Path) -> dict[str, Review]:
    import tomllib

    from penstock.node.concurrency import Review

    if not file.exists():
        return {}
    return {name: Review(**row) for name, row in tomllib.loads(file.read_text(encoding="utf-8")).items()}


def _digests(wanted: dict[str, str]) -> dict[str, str]:
    """Read each service's present digest from its page."""
    mark = "inventory-digest: "
    found = {}
    for name, text in wanted.items():
        if name.startswith("concurrency-"):
            line = next(line for line in text.splitlines() if line.startswith(mark))
            found[name.removeprefix("concurrency-").removesuffix(".md")] = line.removeprefix(mark)
    return found


def _outdated_reviews(wanted: dict[str, str], reviews: dict[str, Review]) -> list[str]:
    from penstock.node.concurrency import REVIEW_DAYS_MAX

    faults = []
    for service, digest in _digests(wanted).items():
        review = reviews.get(service)
        if review is None or review.digest != digest:
            faults.append(f"the inventory of {service} changed since its review: scripts/docs --reviewed {service}")
        elif (_today() - date.fromisoformat(review.last_reviewed)).days > REVIEW_DAYS_MAX:
            sys.stderr.write(f"penstock: warning: {service} was last reviewed on {review.last_reviewed}\n")
    return faults


def _today() -> date:
    return datetime.fromtimestamp(SYSTEM.wall(), UTC).date()


def _note_review(args: argparse.Namespace, wanted: dict[str, str]) -> int:
    from penstock.node.concurrency import Review

    digests = _digests(wanted)
    if args.reviewed not in digests:
        sys.stderr.write(f"penstock: there is no service {args.reviewed}; there are {', '.join(digests)}\n")
        return FAILED
    file = args.dir / "reviews.toml"
    reviews = _reviews(file)
    owner = reviews[args.reviewed].owner if args.reviewed in reviews else "maintainers"
    today = _today().isoformat()
    reviews[args.reviewed] = Review(owner, today, digests[args.reviewed])
    lines = ["# Who last reviewed a service's concurrency model, and which inventory it was."]
    for name, review in sorted(reviews.items()):
        lines += ["", f"[{name}]"]
        lines += [f'{field} = "{getattr(review, field)}"' for field in ("owner", "last_reviewed", "digest")]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    args.reviewed = None
    return _docs(args)
