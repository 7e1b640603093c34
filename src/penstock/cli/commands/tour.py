"""`penstock tour`: demonstrates the promises, one a step, on a running node or on a node of its own."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.cli import asking, running

if TYPE_CHECKING:
    from penstock.cli.tour.context import TourContext
    from penstock.sdk import Client
    from penstock.sdk.remote_place import NodePlace

_PATIENCE_MAX = 10


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--self", action="store_true", help="on a node of its own, which keeps everything in RAM")
    parser.add_argument(
        "--patience",
        type=_factor,
        default=1.0,
        metavar="N",
        help="stretch leases and limits N times, on a slow machine",
    )
    asking.add(parser)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= _PATIENCE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_PATIENCE_MAX}")
    return factor


def run(args: argparse.Namespace) -> int:
    """Walk through every step the node has services for; exit 1 when anything is not as it should be."""
    from penstock.cli.tour.context import TourContext
    from penstock.cli.tour.node import NodeFailed, TourNode
    from penstock.kernel.errors import PenstockError

    try:
        with ExitStack() as stack:
            own = stack.enter_context(TourNode()) if args.self else None
            place = running.place(args) if own is None else own.place
            return _walk(args, place, TourContext(place, as_json=args.json, patience=args.patience))
    except NodeFailed as failed:
        sys.stderr.write(f"penstock: {failed}\n")
        return asking.NOT_READY
    except PenstockError as error:
        return asking.explain(args, error)


def _walk(args: argparse.Namespace, place: NodePlace, tour: TourContext) -> int:
    from penstock.sdk import Client, SdkOptions

    async def visit() -> int:
        async with Client(place, SdkOptions(timeout_s=args.timeout / 1000)) as client:
            return await _steps(client, tour)

    return asking.play(args, visit)


async def _steps(client: Client, tour: TourContext) -> int:
    from penstock.cli.tour.steps import STEPS

    services = set(client.place.services())
    steps = [step for step in STEPS if services.issuperset(step.needs)]
    try:
        for number, step in enumerate(steps, 1):
            await tour.walk(number, step, client)
    finally:
        await tour.tidy(client)  # lint: allow PK014 bounded inside
    tour.show.end(len(steps))
    return asking.FAILED if tour.show.surprises else 0
