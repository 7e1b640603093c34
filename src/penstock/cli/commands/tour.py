"""`penstock tour`: the promises, shown one after the other on a running node or on one of its own."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.cli.tour.context import TourContext
    from penstock.sdk import Client
    from penstock.sdk.discovery import Discovery


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--self", action="store_true", help="on a node of its own, which keeps everything in RAM")
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Walk through every step the node has services for; exit 1 when anything is not as it should be."""
    from penstock.cli.tour.context import TourContext
    from penstock.cli.tour.node import NodeFailed, TourNode

    try:
        with ExitStack() as stack:
            own = stack.enter_context(TourNode()) if args.self else None
            place = _place(args) if own is None else own.place
            return _walk(args, place, TourContext(place, as_json=args.json))
    except NodeFailed as failed:
        sys.stderr.write(f"penstock: {failed}\n")
        return asking.NOT_READY


def _place(args: argparse.Namespace) -> Discovery:
    from penstock.sdk.connecting import find

    return find(args.data_dir)


def _walk(args: argparse.Namespace, place: Discovery, stage: TourContext) -> int:
    from penstock.sdk import Client, SdkOptions

    async def visit() -> int:
        async with Client(place, SdkOptions(timeout_s=args.timeout / 1000)) as client:
            return await _steps(client, stage)

    return asking.play(args, visit)


async def _steps(client: Client, stage: TourContext) -> int:
    from penstock.cli.tour.steps import STEPS

    services = set(client.place.services())
    steps = [step for step in STEPS if services.issuperset(step.needs)]
    try:
        for number, step in enumerate(steps, 1):
            await stage.walk(number, step, client)
    finally:
        await stage.tidy(client)  # lint: allow PK014 bounded inside
    stage.show.end(len(steps))
    return asking.FAILED if stage.show.surprises else 0
