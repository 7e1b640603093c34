"""`penstock nack`: give messages back, which are delivered again later, or never."""

from __future__ import annotations

import argparse

from penstock.cli import asking, settling


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    settling.add(parser)
    parser.add_argument("--reason", help="why; the dead letter will say it")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--delay", type=asking.duration_ms, metavar="TIME", help="again after this (default: backoff)")
    again.add_argument("--final", action="store_true", help="never again: it can never work, and is a dead letter now")


def run(args: argparse.Namespace) -> int:
    """Give each message back."""
    return settling.settle(
        args,
        lambda client, lease: client.mailbox.nack(lease, args.reason, delay_ms=args.delay, final=args.final),
    )
