"""`penstock recv`: lease messages and show them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import asking, running
from penstock.cli.payloads import BinaryOnTerminal, write_raw

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.contracts.mailbox import Envelope


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="where from")
    parser.add_argument("--max", type=int, default=1, metavar="N", help="at most so many at once (1-256)")
    parser.add_argument("--wait", type=asking.duration_ms, default=0, metavar="TIME", help="wait for one (up to 20s)")
    parser.add_argument(
        "--visibility", type=asking.duration_ms, default=30_000, metavar="TIME", help="how long they are yours (30s)"
    )
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--ack", action="store_true", help="ack each message once it is printed")
    parser.add_argument("--raw", action="store_true", help="print the payload's bytes and nothing else")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Show what was leased; Ctrl-C is how following ends, and no failure."""
    try:
        return asking.ask(args, lambda client: _receive(client, args))
    except BinaryOnTerminal as binary:
        return running.refuse(args, str(binary), code="unsupported")
    except KeyboardInterrupt:
        if not args.follow:
            raise
        return 0


async def _receive(client: Client, args: argparse.Namespace) -> int:
    wait_ms = 20_000 if args.follow and not args.wait else args.wait
    while True:
        messages = await client.mailbox.recv(
            args.topic, max_messages=args.max, visibility_ms=args.visibility, wait_ms=wait_ms
        )
        for message in messages:
            _show(args, message)
            if args.ack:
                await client.mailbox.ack(message)
        if not args.follow:
            if not messages and not args.json:
                sys.stderr.write("nothing there\n")
            return 0


def _show(args: argparse.Namespace, message: Envelope) -> None:
    """Print before acking: what could not be printed comes again."""
    if args.json:
        asking.print_json(asking.plain(message))
    elif args.raw:
        write_raw(message.payload)
    else:
        from penstock.cli.paint import message as paint

        paint(message, with_receipt=not args.ack)
    sys.stdout.flush()
