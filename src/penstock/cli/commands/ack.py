"""`penstock ack`: acknowledge messages, which are not delivered again."""

from __future__ import annotations

import argparse

from penstock.cli import settling


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    settling.add(parser)


def run(args: argparse.Namespace) -> int:
    """Acknowledge each message."""
    return settling.settle(args, lambda client, lease: client.mailbox.ack(lease))
