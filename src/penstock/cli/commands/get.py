"""`penstock get`: fetch an object by its address."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from penstock.cli import asking, running
from penstock.cli.payloads import BinaryOnTerminal, write_raw

if TYPE_CHECKING:
    from penstock.sdk import Client


class ByteRange(NamedTuple):
    """Which bytes of an object."""

    offset: int = 0
    length: int | None = None


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("address", help="b3: and 64 hexadecimal digits")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here (default: standard output)")
    parser.add_argument(
        "--range", type=_part, default=ByteRange(), metavar="FROM-TO", help="0-99, or 100- for the rest"
    )
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Fetch it; with --json print what it is and write the bytes only to a file."""
    try:
        return asking.ask(args, lambda client: _fetch(client, args))
    except BinaryOnTerminal as binary:
        return running.refuse(args, str(binary), code="unsupported")
    except OSError as error:
        if args.output is None:
            raise
        return running.refuse(args, f"{args.output} cannot be written: {error.strerror}", code="internal")


def _part(text: str) -> ByteRange:
    found = re.fullmatch(r"(\d{1,15})-(\d{0,15})", text, re.ASCII)
    if found is None or (found[2] and int(found[2]) < int(found[1])):
        raise argparse.ArgumentTypeError(f"{text!r} is no range: write FROM-TO, as 0-99 or 100-")
    return ByteRange(int(found[1]), int(found[2]) - int(found[1]) + 1 if found[2] else None)


async def _fetch(client: Client, args: argparse.Namespace) -> int:
    if args.output is None:
        size = await _print(client, args)
    else:
        size = await _save(client, args)
    if args.json:
        asking.print_json({"address": args.address, "size": size, "offset": args.range.offset})
    return 0


async def _print(client: Client, args: argparse.Namespace) -> int:
    """Keep the object in memory until its hash is checked, because bytes written to a pipe cannot be taken back."""
    data = await client.storage.get(args.address, offset=args.range.offset, length=args.range.length)
    if not args.json:
        write_raw(data)
    return len(data)


async def _save(client: Client, args: argparse.Namespace) -> int:
    with _whole(args.output) as file:
        return await _copy(client, args, file)


@contextmanager
def _whole(output: Path) -> Iterator[BinaryIO]:
    """Write to a temporary file and rename it when it is complete, so that the name never stands for half an object."""
    goal = Path(os.path.realpath(output))
    if goal.exists() and not goal.is_file():
        # A device or a pipe is written into; to put a file in its place would take it from everybody.
        with goal.open("wb") as file:
            yield file
        return
    beside = goal.with_name(f".{goal.name}.part")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(goal)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


async def _copy(client: Client, args: argparse.Namespace, file: BinaryIO) -> int:
    from blake3 import blake3

    from penstock.kernel.errors import Integrity
    from penstock.wire.ids import format_address

    digest, size = blake3(), 0
    async with client.storage.open(args.address, offset=args.range.offset, length=args.range.length) as pieces:
        async for piece in pieces:
            digest.update(piece)
            size += file.write(piece)
    if args.range == ByteRange() and format_address(digest.digest()) != args.address:
        raise Integrity("The object was changed on its way.")
    return size
