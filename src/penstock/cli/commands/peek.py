"""`penstock peek`: look at messages without taking them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="of which topic")
    parser.add_argument("--state", choices=("ready", "inflight", "delayed", "dlq"), default="ready", help="which ones")
    parser.add_argument("--max", type=asking.count, default=10, metavar="N", help="at most so many (default 10)")
    parser.add_argument("--full", action="store_true", help="show long payloads whole on a terminal too")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Show the messages; nobody's lease or attempt changes."""
    return asking.ask(args, lambda client: _peek(client, args))


async def _peek(client: Client, args: argparse.Namespace) -> int:
    messages = await client.mailbox.peek(args.topic, args.state, limit=args.max, payload=True)
    if not messages and not args.json:
        sys.stderr.write("nothing there\n")
    for message in messages:
        if args.json:
            asking.print_json(asking.plain(message))
        else:
            from penstock.cli.tables import message as print_message

            print_message(message, with_receipt=False, full=args.full)
    return 0
