"""`penstock put`: store bytes and print their address."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client

_PIECE_BYTES: Final = 64 << 10


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", help="what to keep; - reads standard input")
    parser.add_argument("--expect", metavar="ADDR", help="only if that is its address")
    parser.add_argument("--provide", action="store_true", help="announce it, so that other nodes find who has it")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Store it and print its address."""
    try:
        source, size = _open(args.file)
    except OSError as error:
        return _unreadable(args, error)

    async def work(client: Client) -> int:
        stored = await client.storage.put_stream(_pieces(source), size=size, expect=args.expect)
        # The address is printed in any case: the object is stored, whether or not it can be announced.
        told = asking.plain(stored)
        if not args.json:
            sys.stdout.write(f"{stored.address}\n")
            sys.stdout.flush()
        if args.provide:
            told["provided"] = asking.plain(await client.dht.provide(stored.address))
        if args.json:
            asking.print_json(told)
        return 0

    with source:
        try:
            return asking.ask(args, work)
        except BrokenPipeError:
            raise
        except OSError as error:
            return _unreadable(args, error)


def _unreadable(args: argparse.Namespace, error: OSError) -> int:
    return asking.refuse(args, f"{args.file} cannot be read: {error.strerror}")


def _open(file: str) -> tuple[BinaryIO, int | None]:
    if file == "-":
        return sys.stdin.buffer, None
    opened = Path(file).open("rb")  # noqa: SIM115 - closed by run
    status = os.fstat(opened.fileno())
    # Only a plain file knows its size; a pipe and a device say 0.
    return opened, status.st_size if stat.S_ISREG(status.st_mode) else None


async def _pieces(source: BinaryIO) -> AsyncIterator[bytes]:  # noqa: RUF029 - the client wants them so
    # A command has nothing else to do while it reads a file.
    while piece := source.read(_PIECE_BYTES):
        yield piece
