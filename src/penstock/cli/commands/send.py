"""`penstock send`: store a message."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client

# More than any mailbox takes: whoever pipes a disk image into it is told so before it is read.
_READ_BYTES_MAX: Final = 64 << 20


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", help="where to")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("payload", nargs="?", metavar="-", help="- reads standard input (so does a pipe without it)")
    what.add_argument("--data", metavar="TEXT", help="the message itself")
    what.add_argument("--file", type=Path, help="the message is this file")
    parser.add_argument("--key", help="messages with one key are delivered in order")
    parser.add_argument("--delay", type=asking.duration_ms, default=0, metavar="TIME", help="deliver after this")
    parser.add_argument(
        "--ttl",
        type=asking.duration_ms,
        metavar="TIME",
        help="how long it may wait; after that it becomes a dead letter",
    )
    parser.add_argument("--idem-key", help="a repeat with the same one is the same message")
    parser.add_argument(
        "--attr", action="append", type=_attribute, default=[], metavar="NAME=VALUE", help="attach; repeatable"
    )
    asking.add(parser)


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no attribute: write NAME=VALUE")
    return name, value


def run(args: argparse.Namespace) -> int:
    """Send the message and print its id when it is stored."""
    attrs = dict(args.attr)
    if len(attrs) < len(args.attr):
        return asking.refuse(args, "an attribute can be given once")
    try:
        payload = _payload(args)
    except OSError as error:
        return asking.refuse(args, f"{args.file or 'standard input'} cannot be read: {error.strerror}")
    except ValueError as error:
        return asking.refuse(args, str(error))

    async def work(client: Client) -> int:
        sent = await client.mailbox.send(
            args.topic,
            payload,
            key=args.key,
            attrs=attrs,
            delay_ms=args.delay,
            ttl_ms=args.ttl,
            idem_key=args.idem_key,
        )
        if args.json:
            asking.print_json(asking.plain(sent))
        else:
            sys.stdout.write(f"{sent.msg_id}{'  (was there already)' if sent.duplicate else ''}\n")
        return 0

    return asking.ask(args, work)


def _payload(args: argparse.Namespace) -> bytes:
    if args.data is not None:
        # The bytes as the shell gave them, text or not.
        return os.fsencode(args.data)
    if args.file is not None:
        with args.file.open("rb") as file:
            return _bounded(file.read(_READ_BYTES_MAX + 1))
    if args.payload not in (None, "-"):
        raise ValueError(f"write --data {args.payload!r}, or - to read standard input")
    return _standard_input(asked=args.payload is not None)


def _standard_input(*, asked: bool) -> bytes:
    """Read standard input. An empty pipe that was not asked for by `-` is no message."""
    data = b"" if not asked and sys.stdin.isatty() else _bounded(sys.stdin.buffer.read(_READ_BYTES_MAX + 1))
    if not data and not asked:
        raise ValueError("nothing to send: give --data, --file or -")
    return data


def _bounded(data: bytes) -> bytes:
    if len(data) > _READ_BYTES_MAX:
        raise ValueError(f"that is more than {_READ_BYTES_MAX} bytes, and no mailbox takes that much")
    return data
