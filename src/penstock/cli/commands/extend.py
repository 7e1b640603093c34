"""`penstock extend`: extend the leases of messages."""

from __future__ import annotations

import argparse

from penstock.cli import asking, settling


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    settling.add(parser)
    parser.add_argument(
        "--visibility", type=asking.duration_ms, default=30_000, metavar="TIME", help="from now on (default 30s)"
    )


def run(args: argparse.Namespace) -> int:
    """Extend each lease."""
    return settling.settle(args, lambda client, lease: client.mailbox.extend(lease, args.visibility))
