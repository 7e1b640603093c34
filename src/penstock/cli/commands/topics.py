"""`penstock topics`: how many messages of each topic wait, are leased or are dead."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import asking, running

if TYPE_CHECKING:
    from penstock.contracts.mailbox import TopicStats
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", nargs="?", help="only this one")
    parser.add_argument("--names", action="store_true", help="print the names alone, one a line")
    parser.add_argument("--prefix", default="", help="only topics whose names begin with this")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Print a row for each topic."""

    async def work(client: Client) -> int:
        mailbox = client.mailbox
        found = await mailbox.topics(prefix=args.prefix) if args.topic is None else (await _one(client, args),)
        if args.names:
            sys.stdout.write("".join(f"{stats.topic}\n" for stats in found))
            return 0
        if args.json:
            for stats in found:
                asking.print_json(asking.plain(stats))
            return 0
        from penstock.cli.tables import topics

        topics(found)
        return 0

    return asking.ask(args, work)


async def _one(client: Client, args: argparse.Namespace) -> TopicStats:
    from penstock.cli.near_topics import meant
    from penstock.kernel.errors import NotFound

    try:
        return await client.mailbox.topic(args.topic)
    except NotFound as error:
        near = await meant(client, args.topic)
        hint = near[:1].upper() + near[1:] or f"See penstock topics{running.said(args)}"
        raise NotFound(f"There is no topic {args.topic}.", hint=hint) from error
