"""`penstock peek`: look at messages without taking them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.contracts.mailbox import Peeked
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="of which topic")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--state", choices=("ready", "inflight", "delayed", "dlq"), default="ready", help="which ones")
    which.add_argument("--id", metavar="MSG_ID", help="this one alone, whatever its state")
    parser.add_argument(
        "--max", "--limit", type=asking.count, default=10, metavar="N", help="at most so many (default 10)"
    )
    parser.add_argument("--full", action="store_true", help="show long payloads whole on a terminal too")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Show the messages; nobody's lease or attempt changes."""
    return asking.ask(args, lambda client: _peek(client, args))


async def _peek(client: Client, args: argparse.Namespace) -> int:
    if args.id is None:
        return await show_all(args, client.mailbox.peek_all(args.topic, args.state, limit=args.max, payload=True))
    message = await client.mailbox.peek_one(args.topic, args.id, payload=True)
    show(args, message, state=message.state)
    return 0


async def show_all(args: argparse.Namespace, messages: AsyncIterator[Peeked]) -> int:
    """Show messages as they come, page after page."""
    shown = 0
    async for message in messages:
        show(args, message)
        shown += 1
    if not shown and not args.json:
        sys.stderr.write("nothing there\n")
    return 0


def show(args: argparse.Namespace, message: Peeked, state: str | None = None) -> None:
    """Show one message; its state too where that was not asked for."""
    if args.json:
        asking.print_json(asking.plain(message))
        return
    from penstock.cli.tables import message as print_message

    print_message(message, with_receipt=False, full=args.full, state=state)
