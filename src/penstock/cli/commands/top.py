"""`penstock top`: the node's verdict and its busiest topics, drawn again every second."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import asking, running
from penstock.cli.watching import watch

if TYPE_CHECKING:
    from penstock.cli.node_told import NodeTold
    from penstock.contracts.mailbox import TopicStats
    from penstock.sdk import Client

_REFUSALS: Final = ("unauthenticated", "expired", "forbidden")
_COUNTS: Final = ("ready", "inflight", "delayed", "dlq")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--max", type=asking.count, default=20, metavar="N", help="at most so many topics (default 20)")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Draw until Ctrl-C; where the output is no terminal, once."""
    return watch(lambda: asking.ask(args, lambda client: _draw(client, args)))


async def _draw(client: Client, args: argparse.Namespace) -> int:
    from penstock.cli import node_told

    told: NodeTold | None = None
    try:
        told = node_told.ask(args)
    except running.NodeSilent as failed:
        # The topics that a token covers need no operator. A mailbox that runs alone has topics, and no node to ask.
        if failed.code in _REFUSALS and not args.json:
            return running.refuse(args, str(failed), code=failed.code)
    found = await client.mailbox.topics()
    if args.json:
        asking.print_json(_document(found, told, args.max))
        return 0
    from penstock.cli.tables import say_totals, topics

    say_totals(found, told)
    topics(_busiest(found, args.max))
    return 0


def _document(found: Sequence[TopicStats], told: NodeTold | None, count: int) -> dict[str, Any]:
    totals = {name: sum(getattr(stats, name) for stats in found) for name in _COUNTS}
    return {
        "node": None if told is None else told._asdict(),
        "totals": {"topics": len(found), **totals},
        "topics": [asking.plain(stats) for stats in _busiest(found, count)],
    }


def _busiest(found: Iterable[TopicStats], count: int) -> list[TopicStats]:
    busiest = sorted(found, key=lambda each: (each.send_rate + each.ack_rate, each.ready, each.dlq), reverse=True)
    return busiest[:count]
