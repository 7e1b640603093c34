"""`penstock dlq`: list dead letters, show them, send them back."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import asking
from penstock.cli.commands.peek import show_all

if TYPE_CHECKING:
    from penstock.contracts.mailbox import DeadLetter, Peeked
    from penstock.sdk import Client

_REASON = "only those with this reason; rejected means all that begin with rejected:"
_FULL = "show long payloads whole on a terminal too"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    shown = actions.add_parser("list", help="show reason, origin and attempts")
    shown.add_argument("topic", nargs="?", help="only of this topic")
    shown.add_argument("--reason", help=_REASON)
    shown.add_argument("--max", type=asking.count, default=100, metavar="N", help="at most so many (default 100)")
    asking.add(shown)
    shown.set_defaults(action=_list)
    peek = actions.add_parser("peek", help="show the messages themselves")
    peek.add_argument("topic", help="of which topic")
    peek.add_argument("--max", type=asking.count, default=10, metavar="N", help="at most so many (default 10)")
    peek.add_argument("--full", action="store_true", help=_FULL)
    asking.add(peek)
    peek.set_defaults(action=_peek)
    one = actions.add_parser("show", help="show one dead letter: its payload, its history, and the last error")
    one.add_argument("topic", help="of which topic")
    one.add_argument("msg_id", nargs="?", help="which; without it the newest of the first page")
    one.add_argument("--full", action="store_true", help=_FULL)
    asking.add(one)
    one.set_defaults(action=_show)
    redrive = actions.add_parser("redrive", help="send them back to where they came from")
    redrive.add_argument("topic", help="of which topic")
    redrive.add_argument("msg_id", nargs="*", help="only these; without any, as many as --max allows")
    redrive.add_argument("--reason", help=_REASON)
    redrive.add_argument("--max", type=asking.count, default=1000, metavar="N", help="at most so many (default 1000)")
    redrive.add_argument("--to", metavar="TOPIC", help="to this topic instead")
    redrive.add_argument("--dry-run", action="store_true", help="only count them")
    asking.add(redrive)
    redrive.set_defaults(action=_redrive)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return asking.ask(args, lambda client: args.action(client, args))


async def _list(client: Client, args: argparse.Namespace) -> int:
    letters: list[DeadLetter] = []
    async for letter in client.mailbox.dead_letters(args.topic, reason=args.reason):
        if len(letters) == args.max:
            break
        letters.append(letter)
    if args.json:
        for letter in letters:
            asking.print_json(asking.plain(letter))
        return 0
    from penstock.cli.tables import dead_letters

    dead_letters(letters)
    return 0


async def _peek(client: Client, args: argparse.Namespace) -> int:
    return await show_all(args, client.mailbox.peek_all(args.topic, "dlq", limit=args.max, payload=True))


async def _show(client: Client, args: argparse.Namespace) -> int:
    from penstock.kernel.errors import NotFound

    found = [
        letter
        async for letter in client.mailbox.dead_letters(args.topic)
        if args.msg_id is None or letter.msg_id == args.msg_id
    ]
    if not found:
        raise NotFound("There is no such dead letter.", hint=f"See penstock dlq list {args.topic}.")
    letter = found[-1]
    if args.json:
        asking.print_json(asking.plain(letter))
        return 0
    from penstock.cli.tables import dead_letter

    dead_letter(letter, await _message(client, letter), full=args.full)
    return 0


async def _message(client: Client, letter: DeadLetter) -> Peeked | None:
    """Read the message itself, unless somebody sent it back or deleted it meanwhile."""
    from penstock.kernel.errors import NotFound

    try:
        return await client.mailbox.peek_one(letter.topic, letter.msg_id, payload=True)
    except NotFound:
        return None


async def _redrive(client: Client, args: argparse.Namespace) -> int:
    if args.msg_id:
        return await _redrive_some(client, args)
    accepted = await client.mailbox.reprocess(
        args.topic, limit=args.max, reason=args.reason, to=args.to, dry_run=args.dry_run
    )
    return _say_redriven(args, accepted, {})


async def _redrive_some(client: Client, args: argparse.Namespace) -> int:
    """Send the named ones back; what is no dead letter of the topic is told, and the others go."""
    if args.reason is not None:
        return asking.refuse(args, "name dead letters or give --reason, not both")
    wanted = list(dict.fromkeys(args.msg_id))
    missing = [
        msg_id
        for msg_id in wanted
        if not await client.mailbox.reprocess(args.topic, limit=1, msg_id=msg_id, to=args.to, dry_run=args.dry_run)
    ]
    for msg_id in missing:
        sys.stderr.write(f"penstock: {args.topic} has no dead letter {msg_id}\n")
    return _say_redriven(args, len(wanted) - len(missing), {"missing": missing})


def _say_redriven(args: argparse.Namespace, accepted: int, more: dict[str, list[str]]) -> int:
    if args.json:
        asking.print_json({"accepted": accepted, "dry_run": args.dry_run, **more})
    else:
        go = "would go" if args.dry_run else "goes" if accepted == 1 else "go"
        sys.stdout.write(f"{accepted} {go} back\n")
    return asking.FAILED if more.get("missing") else 0
