"""`penstock purge`: remove everything that waits in a topic."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import asking, confirming

if TYPE_CHECKING:
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="which topic; its dead letters stay")
    confirming.add(parser)
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Purge after a confirmation; a script says --yes."""
    return asking.ask(args, lambda client: _purge(client, args))


async def _purge(client: Client, args: argparse.Namespace) -> int:
    from penstock.wire.plain_words import counted

    stats = await client.mailbox.topic(args.topic)
    waiting = stats.ready + stats.inflight + stats.delayed
    code = confirming.refused(args, f"{counted(waiting, 'message')} of {args.topic}")
    if code is not None:
        return code
    purged = await client.mailbox.purge(args.topic)
    if args.json:
        asking.print_json({"purged": purged})
    else:
        sys.stdout.write(f"{purged} removed\n")
    return 0
