"""`penstock route`: put the gateway before a service of your own, while it runs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote

from penstock.cli import running

_PATH = "/v1/node/routes"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    new = actions.add_parser("add", help="lead a path of the gateway to a service of yours, at once")
    new.add_argument("prefix", help="what the paths begin with, as /shop")
    new.add_argument("upstream", nargs="+", help="where they go, as http://127.0.0.1:8000; several take turns")
    new.add_argument("--keep-prefix", action="store_true", help="pass the path on with the prefix (default: without)")
    new.add_argument("--require", action="append", default=[], metavar="NAME=VALUE", help="what a token must cover")
    new.add_argument("--method", action="append", metavar="NAME", help="only this method; repeatable")
    _finish(new, _add)
    _finish(actions.add_parser("list", help="show every route, and whether its upstream is well"), _list)
    gone = actions.add_parser("remove", help="remove a route that was added")
    gone.add_argument("prefix", help="which")
    _finish(gone, _remove)


def _finish(parser: argparse.ArgumentParser, action: Any) -> None:  # noqa: ANN401 - one of the functions below
    running.add(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(action=action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the node must be running."""
    return int(args.action(args))


def _add(args: argparse.Namespace) -> int:
    asked: dict[str, Any] = {"prefix": args.prefix, "upstream": args.upstream, "strip_prefix": not args.keep_prefix}
    asked |= {"require": args.require} | ({"methods": args.method} if args.method else {})
    before = running.fetch(args, "GET", _PATH)
    done = None if before is None else running.fetch(args, "POST", _PATH, asked)
    if done is None:
        return 1
    old = next((route for route in before["routes"] if route["prefix"] == done["route"]["prefix"]), None)
    if args.json:
        sys.stdout.write(json.dumps({**done, "replaced": old and old["upstream"]}) + "\n")
        return 0
    _show(done["route"])
    if old is not None:
        sys.stdout.write(f"replaced the route of {old['prefix']} to {', '.join(old['upstream'])}\n")
    for warning in done["warnings"]:
        sys.stderr.write(f"penstock: note: {warning}\n")
    return 0


def _list(args: argparse.Namespace) -> int:
    done = running.fetch(args, "GET", _PATH)
    if done is None:
        return 1
    if args.json:
        sys.stdout.write(json.dumps(done) + "\n")
        return 0
    for route in done["routes"]:
        _show(route)
    if not done["routes"]:
        sys.stdout.write("no routes; penstock route add /shop http://127.0.0.1:8000 makes one\n")
    return 0


def _show(route: dict[str, Any]) -> None:
    asks = ", ".join(route["require"]) or "open to anyone"
    goes = ", ".join(route["upstream"])
    marks = [route["source"], "" if route["strip_prefix"] else "keeps the prefix", "" if route["healthy"] else "DOWN"]
    sys.stdout.write(f"{route['prefix']}  ->  {goes}  ({'; '.join(filter(None, [asks, *marks]))})\n")


def _remove(args: argparse.Namespace) -> int:
    done = running.fetch(args, "DELETE", f"{_PATH}?prefix={quote(args.prefix, safe='')}")
    if done is None:
        return 1
    sys.stdout.write((json.dumps(done) if args.json else f"{done['removed']} is gone") + "\n")
    return 0
