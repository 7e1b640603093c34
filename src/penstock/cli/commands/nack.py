"""`penstock nack`: give messages back, which are delivered again later."""

from __future__ import annotations

import argparse

from penstock.cli import asking, settling


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    settling.add(parser)
    parser.add_argument("--reason", help="why; the dead letter will say it")
    parser.add_argument("--delay", type=asking.duration_ms, metavar="TIME", help="again after this (default: backoff)")


def run(args: argparse.Namespace) -> int:
    """Give each message back."""
    return settling.settle(args, lambda client, lease: client.mailbox.nack(lease, args.reason, delay_ms=args.delay))
