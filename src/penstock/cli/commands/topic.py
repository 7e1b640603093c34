"""`penstock topic`: show, change and take away the settings of a topic; delete a topic whole."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import asking, confirming

if TYPE_CHECKING:
    from penstock.contracts.mailbox import SettingsShown
    from penstock.sdk import Client


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    change = actions.add_parser("set", help="change some settings, keep the others")
    change.add_argument("topic", help="of which topic")
    change.add_argument(
        "settings", nargs="+", metavar="NAME=VALUE", help="for example max_attempts=10 paused=true dedup.window_s=3600"
    )
    asking.add(change)
    change.set_defaults(action=_set)
    unset = actions.add_parser("unset", help="take some settings away, or all of them")
    unset.add_argument("topic", help="of which topic")
    unset.add_argument("settings", nargs="*", metavar="NAME", help="which; none: all of them")
    asking.add(unset)
    unset.set_defaults(action=_unset)
    show = actions.add_parser("show", help="show the settings of a topic")
    show.add_argument("topic", help="of which topic")
    asking.add(show)
    show.set_defaults(action=_show)
    delete = actions.add_parser("delete", help="remove a topic whole: messages, dead letters, settings")
    delete.add_argument("topic", help="which topic")
    confirming.add(delete)
    asking.add(delete)
    delete.set_defaults(action=_delete)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    from penstock.kernel.errors import Malformed

    try:
        args.changes = dict(map(_read, args.settings)) if args.action is _set else {}
    except Malformed as error:
        return asking.refuse(args, error.detail)
    return asking.ask(args, lambda client: args.action(client, args))


def _read(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; a value that is no JSON is a text."""
    from penstock.kernel.errors import Malformed

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Malformed(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


async def _now(client: Client, topic: str) -> dict[str, Any]:
    """Return the settings as they are; a topic without any has none set."""
    from penstock.kernel.errors import NotFound

    try:
        shown = await client.mailbox.settings(topic)
    except NotFound:
        return {}
    plain: dict[str, Any] = asking.plain(shown.settings)
    return plain


async def _set(client: Client, args: argparse.Namespace) -> int:
    settings = await _now(client, args.topic)
    for name, value in args.changes.items():
        table, _, field = name.rpartition(".")
        if table:
            settings[table] = {**(settings.get(table) or {}), field: value}
        else:
            settings[name] = value
    return await _put(client, args, settings)


async def _unset(client: Client, args: argparse.Namespace) -> int:
    if not args.settings:
        await client.mailbox.delete_settings(args.topic)
        return _say(args, {"topic": args.topic, "settings": None}, f"{args.topic} has the usual settings again\n")
    settings = await _now(client, args.topic)
    for name in args.settings:
        settings.pop(name, None)
    return await _put(client, args, settings)


async def _put(client: Client, args: argparse.Namespace, settings: dict[str, Any]) -> int:
    from penstock.contracts.mailbox import TopicSettings
    from penstock.sdk.values import checked

    unknown = next((name for name in settings if name not in TopicSettings.__struct_fields__), None)
    if unknown is not None:
        return asking.refuse(args, _no_setting(unknown, TopicSettings.__struct_fields__))
    return _print(args, await client.mailbox.put_settings(args.topic, checked(TopicSettings, **settings)))


def _no_setting(name: str, known: tuple[str, ...]) -> str:
    from penstock.wire.plain_words import near_word

    near = near_word(name, known)
    meant = f"; did you mean {near}?" if near else f". There are {', '.join(known)}."
    return f"a topic has no setting {name}{meant}"


async def _show(client: Client, args: argparse.Namespace) -> int:
    return _print(args, await client.mailbox.settings(args.topic))


async def _delete(client: Client, args: argparse.Namespace) -> int:
    from penstock.wire.plain_words import counted

    stats = await client.mailbox.topic(args.topic)
    living = counted(stats.ready + stats.inflight + stats.delayed, "message")
    what = f"{args.topic} with {living}, {counted(stats.dlq, 'dead letter')} and its settings"
    code = confirming.refused(args, what)
    if code is not None:
        return code
    deleted = await client.mailbox.delete_topic(args.topic)
    text = f"{args.topic} is gone, with {counted(deleted, 'message')}\n"
    return _say(args, {"topic": args.topic, "deleted": deleted}, text)


def _print(args: argparse.Namespace, shown: SettingsShown) -> int:
    plain = asking.plain(shown)
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in sorted(plain["settings"].items())]
    return _say(args, plain, "".join(lines) or f"{shown.topic} is set up, and says nothing of its own\n")


def _say(args: argparse.Namespace, plain: dict[str, Any], text: str) -> int:
    if args.json:
        asking.print_json(plain)
    else:
        sys.stdout.write(text)
    return 0
