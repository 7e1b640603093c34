"""`penstock dlq`: list dead letters, show them, send them back, delete them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.cli import asking, confirming, running
from penstock.cli.commands.peek import show_all

if TYPE_CHECKING:
    from penstock.contracts.mailbox import DeadLetter, Peeked
    from penstock.sdk import Client

_REASON = "only those with this reason; rejected means all that begin with rejected:"
_ONE_KIND = "name dead letters or give --reason, not both"
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
    one.add_argument("msg_id", nargs="?", help="which; without it the one that died last")
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
    delete = actions.add_parser("delete", help="remove them for good")
    delete.add_argument("topic", help="of which topic")
    delete.add_argument("msg_id", nargs="*", help="only these; without any, as many as --max allows, oldest first")
    delete.add_argument("--reason", help=_REASON)
    delete.add_argument("--max", type=asking.count, default=1000, metavar="N", help="at most so many (default 1000)")
    delete.add_argument("--dry-run", action="store_true", help="only count them")
    confirming.add(delete)
    asking.add(delete)
    delete.set_defaults(action=_delete)


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
    if not letters and args.topic is not None:
        await _tell_near(client, args)
    return 0


async def _tell_near(client: Client, args: argparse.Namespace) -> None:
    """Ask whether another topic was meant, where nothing was found under the one that was named."""
    from penstock.cli.near_topics import meant

    if said := await meant(client, args.topic):
        sys.stderr.write(f"penstock: {said}\n")


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
        raise NotFound("There is no such dead letter.", hint=f"See penstock dlq list {args.topic}{running.said(args)}")
    letter = max(found, key=attrgetter("dead_at"))
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
    if not accepted:
        await _tell_near(client, args)
    return _say_redriven(args, accepted, [])


async def _redrive_some(client: Client, args: argparse.Namespace) -> int:
    """Send the named ones back; what is no dead letter of the topic is told, and the others go."""

    async def redrive(msg_id: str) -> int:
        return await client.mailbox.reprocess(args.topic, limit=1, msg_id=msg_id, to=args.to, dry_run=args.dry_run)

    if args.reason is not None:
        return asking.refuse(args, _ONE_KIND)
    return _say_redriven(args, *await _each(args, redrive))


async def _each(args: argparse.Namespace, act: Callable[[str], Awaitable[int]]) -> tuple[int, list[str]]:
    """Act on each dead letter that was named; returns how many there were, and which of the names are of none."""
    wanted = list(dict.fromkeys(args.msg_id))
    missing = [msg_id for msg_id in wanted if not await act(msg_id)]
    return len(wanted) - len(missing), missing


def _say_redriven(args: argparse.Namespace, accepted: int, missing: list[str]) -> int:
    go = "would go" if args.dry_run else "goes" if accepted == 1 else "go"
    return _say(args, {"accepted": accepted}, f"{accepted} {go} back", missing)


def _say(args: argparse.Namespace, done: dict[str, int], text: str, missing: list[str]) -> int:
    """Say what was done, and which names are of no dead letter; exit 1 if any is."""
    for msg_id in missing:
        sys.stderr.write(f"penstock: {args.topic} has no dead letter {msg_id}\n")
    if args.json:
        asking.print_json({**done, "dry_run": args.dry_run, **({"missing": missing} if args.msg_id else {})})
    else:
        sys.stdout.write(text + "\n")
    return asking.FAILED if missing else 0


async def _delete(client: Client, args: argparse.Namespace) -> int:
    """Count first, ask, then delete no more than were counted; a script says --yes."""
    from penstock.wire.plain_words import counted

    if args.msg_id and args.reason is not None:
        return asking.refuse(args, _ONE_KIND)
    if args.dry_run or args.yes:
        removed, missing = await _remove(client, args, args.max, dry_run=args.dry_run)
        if not removed and not missing:
            await _tell_near(client, args)
        return _say_deleted(args, removed, missing)
    found, missing = await _remove(client, args, args.max, dry_run=True)
    if not found:
        if not missing:
            await _tell_near(client, args)
        return _say_deleted(args, 0, missing)
    which = f" with the reason {args.reason}" if args.reason is not None else ""
    code = confirming.refused(args, f"{counted(found, 'dead letter')} of {args.topic}{which}")
    return _say_deleted(args, *await _remove(client, args, found, dry_run=False)) if code is None else code


async def _remove(client: Client, args: argparse.Namespace, limit: int, *, dry_run: bool) -> tuple[int, list[str]]:
    """Remove the chosen dead letters, or count them; returns how many, and which of the names are of none."""

    async def remove(msg_id: str) -> int:
        return await client.mailbox.delete_dead(args.topic, limit=1, msg_id=msg_id, dry_run=dry_run)

    if args.msg_id:
        return await _each(args, remove)
    return await client.mailbox.delete_dead(args.topic, limit=limit, reason=args.reason, dry_run=dry_run), []


def _say_deleted(args: argparse.Namespace, deleted: int, missing: list[str]) -> int:
    done = "would be removed" if args.dry_run else "removed"
    cut = ", as many as --max allows" if deleted == args.max and not args.msg_id else ""
    return _say(args, {"deleted": deleted}, f"{deleted} {done}{cut}", missing)
