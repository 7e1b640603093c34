"""`penstock purge`: remove everything that waits in a topic."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="which topic; its dead letters stay")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Purge after a confirmation; a script says --yes."""
    return asking.ask(args, lambda client: _purge(client, args))


async def _purge(client: Client, args: argparse.Namespace) -> int:
    stats = await client.mailbox.topic(args.topic)
    waiting = stats.ready + stats.inflight + stats.delayed
    if not args.yes:
        if not sys.stdin.isatty():
            return asking.refuse(args, f"{waiting} messages of {args.topic} would be gone for good; say --yes to do it")
        sys.stderr.write(f"Remove {waiting} messages of {args.topic} for good? Write the topic's name to do it: ")
        if sys.stdin.readline().strip() != args.topic:
            sys.stderr.write("nothing was removed\n")
            return asking.FAILED
    purged = await client.mailbox.purge(args.topic)
    if args.json:
        asking.print_json({"purged": purged})
    else:
        sys.stdout.write(f"{purged} removed\n")
    return 0
