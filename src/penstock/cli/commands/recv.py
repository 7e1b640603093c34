"""`penstock recv`: lease messages and show them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli import asking, running
from penstock.cli.payloads import BinaryOnTerminal, write_raw

if TYPE_CHECKING:
    from penstock.cli.following import StoppableBlock
    from penstock.contracts.mailbox import Envelope
    from penstock.sdk import Client

_POLL_MS: Final = 20_000


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="where from")
    parser.add_argument("--max", type=asking.count, default=1, metavar="N", help="at most so many at once (1-256)")
    parser.add_argument("--wait", type=asking.duration_ms, default=0, metavar="TIME", help="wait for one (up to 20s)")
    parser.add_argument(
        "--visibility", type=asking.duration_ms, default=30_000, metavar="TIME", help="how long they are yours (30s)"
    )
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--ack", action="store_true", help="ack each message once it is printed")
    parser.add_argument("--raw", action="store_true", help="print the payload's bytes and nothing else")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Show the leased messages. Ctrl-C ends `--follow` without a failure."""
    try:
        return asking.ask(args, lambda client: _receive(client, args))
    except BinaryOnTerminal as binary:
        return running.refuse(args, str(binary), code="unsupported")
    except KeyboardInterrupt:
        if not args.follow:
            raise
        return 0


async def _receive(client: Client, args: argparse.Namespace) -> int:
    if args.follow:
        from penstock.cli.following import StoppableBlock

        with StoppableBlock() as ending:
            await _follow(client, args, ending)
        return 0
    messages = await _take(client, args, args.wait)
    for message in messages:
        await _hand_out(client, args, message)
    if not messages and not args.json:
        sys.stderr.write(f"nothing there{await _paused(client, args) or await _unknown(client, args.topic)}\n")
    return 0


async def _unknown(client: Client, topic: str) -> str:
    """Say that there is no such topic, and which one may have been meant; empty where there is, or nobody can tell."""
    from penstock.cli.near_topics import meant
    from penstock.kernel.errors import NotFound, PenstockError

    try:
        await client.mailbox.topic(topic)
    except NotFound:
        near = await meant(client, topic)
        # A topic that was drained is forgotten, so whether there ever was one cannot be told.
        return f"; {topic} has no messages at all, waiting, leased or delayed{f' ({near})' if near else ''}"
    except PenstockError:
        return ""
    return ""


async def _paused(client: Client, args: argparse.Namespace) -> str:
    """Say that a topic hands nothing out because it is paused; empty where it is not, or where that is not known."""
    from penstock.kernel.errors import PenstockError

    try:
        shown = await client.mailbox.settings(args.topic)
    except PenstockError:
        return ""
    resume = f"penstock topic set {args.topic} paused=false{running.said(args)}"
    return f": {args.topic} is paused ({resume})" if shown.settings.paused else ""


async def _take(client: Client, args: argparse.Namespace, wait_ms: int) -> Sequence[Envelope]:
    return await client.mailbox.recv(args.topic, max_messages=args.max, visibility_ms=args.visibility, wait_ms=wait_ms)


async def _hand_out(client: Client, args: argparse.Namespace, message: Envelope) -> None:
    from penstock.kernel.errors import Conflict, NotFound

    _show(args, message)
    try:
        if args.ack:
            await client.mailbox.ack(message)
    except (Conflict, NotFound) as error:
        if not args.follow:
            raise
        # The lease ended before we did: the message comes again, to us or to another.
        asking.explain(args, error)


async def _follow(client: Client, args: argparse.Namespace, ending: StoppableBlock) -> None:
    """Receive until stopped. If the node goes away, wait for it: it may be restarting."""
    from penstock.kernel.errors import PenstockError
    from penstock.sdk.errors import waiting_mends

    # The first time without waiting: where there is no node, that shall be said at once.
    messages = await _take(client, args, 0)
    failures = 0
    while not ending.asked:
        try:
            for message in messages:
                with ending.later():
                    await _hand_out(client, args, message)
            messages = await _take(client, args, args.wait or _POLL_MS)
            failures = 0
        except PenstockError as error:
            if not waiting_mends(error):
                raise
            messages = ()
            if not failures:
                sys.stderr.write(f"penstock: waiting for the node: {error.detail}\n")
            await _pause(failures)
            failures += 1


async def _pause(failures: int) -> None:
    import random

    from penstock.kernel.backoff import FullJitter
    from penstock.kernel.deadline import pause

    await pause("follow_pause", FullJitter(0.2, cap_s=5.0).delay(failures, random.SystemRandom()))


def _show(args: argparse.Namespace, message: Envelope) -> None:
    """Print a message before acking it, so that one that could not be printed is delivered again."""
    if args.json:
        asking.print_json(asking.plain(message))
    elif args.raw:
        write_raw(message.payload)
    else:
        from penstock.cli.tables import message as print_message

        print_message(message, with_receipt=not args.ack)
    sys.stdout.flush()
