"""`penstock top`: the node's verdict and its busiest topics, drawn again every second."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli import asking, running
from penstock.cli.watching import watch

if TYPE_CHECKING:
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--max", type=asking.count, default=20, metavar="N", help="at most so many topics (default 20)")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; where the output is no terminal, once."""
    return watch(lambda: asking.ask(args, lambda client: _draw(client, args)))


async def _draw(client: Client, args: argparse.Namespace) -> int:
    found = await client.mailbox.topics()
    busiest = sorted(found, key=lambda each: (each.send_rate + each.ack_rate, each.ready, each.dlq), reverse=True)
    if args.json:
        for stats in busiest[: args.max]:
            asking.print_json(asking.plain(stats))
        return 0
    from penstock.cli.tables import say_totals, topics

    status = running.fetch(args, "GET", "/v1/node/status")
    say_totals(found, None if status is None else bool(status["ready"]))
    topics(busiest[: args.max])
    return 0
