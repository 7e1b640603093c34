"""`penstock status`: one table of a running node."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import running
from penstock.cli.watching import watch

if TYPE_CHECKING:
    from penstock.cli.upstreams import FailingUpstream


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    running.add(parser)
    parser.add_argument("--watch", action="store_true", help="draw it again every second, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the status; exit 1 when the node does not answer or is not ready."""
    return watch(lambda: _draw(args)) if args.watch else _draw(args)


def _draw(args: argparse.Namespace) -> int:
    status = running.fetch(args, "GET", "/v1/node/status")
    if status is None:
        return 1
    down = _failing_upstreams(args, status)
    if args.json:
        sys.stdout.write(json.dumps({**status, "failing_upstreams": [each.plain() for each in down]}) + "\n")
    else:
        from penstock.cli.tables import status as print_status

        print_status(status, down, running.said(args))
    return 0 if status["ready"] else 1


def _failing_upstreams(args: argparse.Namespace, status: dict[str, Any]) -> list[FailingUpstream]:
    """Ask the gateway for the upstreams that fail. A node that has ended meanwhile is told of by the next drawing."""
    from penstock.cli.upstreams import failing

    if not any(service["service"] == "omnigate" for service in status["services"]):
        return []
    try:
        return failing(running.ask_node(args, "GET", "/v1/node/routes")["routes"])
    except running.NodeSilent:
        return []
