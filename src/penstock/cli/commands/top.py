"""`penstock top`: the node's verdict and its busiest topics, drawn again every second."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.cli import asking, running
from penstock.cli.watching import watch

if TYPE_CHECKING:
    from penstock.contracts.mailbox import TopicStats
    from penstock.sdk import Client

_REFUSALS: Final = ("unauthenticated", "expired", "forbidden")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--max", type=asking.count, default=20, metavar="N", help="at most so many topics (default 20)")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; where the output is no terminal, once."""
    return watch(lambda: asking.ask(args, lambda client: _draw(client, args)))


async def _draw(client: Client, args: argparse.Namespace) -> int:
    if args.json:
        for stats in _busiest(await client.mailbox.topics(), args.max):
            asking.print_json(asking.plain(stats))
        return 0
    from penstock.cli.tables import say_totals, topics

    try:
        ready: bool | None = bool(running.ask_node(args, "GET", "/v1/node/status")["ready"])
    except running.NodeSilent as failed:
        if failed.code in _REFUSALS:
            return running.refuse(args, str(failed), code=failed.code)
        # A mailbox that runs alone has topics, and no node that could tell its verdict.
        ready = None
    found = await client.mailbox.topics()
    say_totals(found, ready)
    topics(_busiest(found, args.max))
    return 0


def _busiest(found: Iterable[TopicStats], count: int) -> list[TopicStats]:
    busiest = sorted(found, key=lambda each: (each.send_rate + each.ack_rate, each.ready, each.dlq), reverse=True)
    return busiest[:count]
