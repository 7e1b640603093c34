"""What ack, nack and extend share: leases named on the command line, or read from the output of `recv --json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client


class Lease(NamedTuple):
    """The id of a message and the receipt of its lease."""

    msg_id: str
    receipt: str


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("msg_id", help="which message; - reads lines of `recv --json` from standard input")
    parser.add_argument("receipt", nargs="?", help="which lease of it")
    asking.add(parser)


def settle(args: argparse.Namespace, act: Callable[[Client, Lease], Awaitable[object]]) -> int:
    """Settle each lease on its own; exit 1 when any was refused."""

    async def work(client: Client) -> int:
        from penstock.kernel.errors import PenstockError

        worst = 0
        for lease in leases:
            try:
                done = await act(client, lease)
            except PenstockError as error:
                worst = max(worst, asking.explain(args, error))
                continue
            _say(args, lease, asking.plain(done))
        return worst

    try:
        leases = list(_leases(args))
    except ValueError as error:
        return asking.refuse(args, str(error))
    return asking.ask(args, work)


def _say(args: argparse.Namespace, lease: Lease, done: dict[str, Any]) -> None:
    if args.json:
        asking.print_json({"msg_id": lease.msg_id, **done})
    elif done.get("dead_lettered"):
        sys.stdout.write(f"{lease.msg_id} is a dead letter now\n")


def _leases(args: argparse.Namespace) -> Iterator[Lease]:
    if args.msg_id != "-":
        if args.receipt is None:
            raise ValueError("a message is settled by its msg_id and its receipt")
        yield Lease(args.msg_id, args.receipt)
        return
    for number, line in enumerate(sys.stdin, 1):
        try:
            said = json.loads(line)
            yield Lease(str(said["msg_id"]), str(said["receipt"]))
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"line {number} is no message as `recv --json` prints it") from None
