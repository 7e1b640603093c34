"""`penstock webhook`: look at webhooks, replay them, pause endpoints, pass events on; sign a body to try one out."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import asking, running, webhook_signing

if TYPE_CHECKING:
    from penstock.contracts.interop import DeliveryOpened, EndpointShown
    from penstock.sdk import Client, Delivery
    from penstock.sdk.consumer import Handler
    from penstock.sdk.webhook_forwarding import ForwardedWebhook, WebhookForwarder

_OUTCOMES = ("accepted", "duplicate", "handshake", "refused", "failed")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    shown = _asking(actions, "list", "show endpoints and the last deliveries", _list)
    shown.add_argument("name", nargs="?", help="only of this endpoint")
    shown.add_argument("--outcome", choices=_OUTCOMES, help="only deliveries with this outcome")
    shown.add_argument(
        "--max", type=asking.count, default=20, metavar="N", help="at most so many deliveries (default 20)"
    )
    _asking(actions, "show", "show one delivery with its event", _show).add_argument("id", help="its id or corr_id")
    replay = _asking(actions, "replay", "put the event of a delivery into its topic once more", _replay)
    replay.add_argument("id", help="its id or corr_id")
    _asking(actions, "pause", "let no webhook of an endpoint in", _pause).add_argument("name", help="the endpoint")
    _asking(actions, "resume", "let the webhooks of an endpoint in again", _resume).add_argument("name")
    listen = _asking(actions, "listen", "pass webhooks on to a program of yours as they come", _listen)
    listen.add_argument("name", help="the endpoint")
    listen.add_argument("--forward", required=True, metavar="URL", help="where the program listens")
    listen.add_argument("--topic", help="take events from this topic (default: the endpoint's)")
    webhook_signing.add(actions)


def _asking(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - private types
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    asking.add(parser)
    parser.set_defaults(action=lambda args: asking.ask(args, lambda client: act(client, args)))
    return parser


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return int(args.action(args))


# --- the inbox


async def _list(client: Client, args: argparse.Namespace) -> int:
    endpoints = [each for each in await client.interop.endpoints() if args.name in (None, each.name)]
    if args.name is not None and not endpoints:
        return _unknown(args)
    deliveries = await client.interop.deliveries(args.name, outcome=args.outcome, limit=args.max)
    if args.json:
        asking.print_json(
            {"endpoints": list(map(asking.plain, endpoints)), "deliveries": list(map(asking.plain, deliveries))}
        )
        return 0
    from penstock.cli import webhook_tables

    webhook_tables.endpoints(endpoints)
    sys.stdout.write("\n")
    webhook_tables.deliveries(deliveries)
    return 0


def _unknown(args: argparse.Namespace) -> int:
    from penstock.kernel.errors import NotFound

    return asking.explain(args, NotFound(f"There is no endpoint {args.name!r}: see `penstock webhook list`."))


async def _show(client: Client, args: argparse.Namespace) -> int:
    opened: DeliveryOpened = await client.interop.delivery(args.id)
    if args.json:
        asking.print_json(asking.plain(opened))
        return 0
    from penstock.cli import webhook_tables

    webhook_tables.delivery(opened)
    return 0


async def _replay(client: Client, args: argparse.Namespace) -> int:
    done = await client.interop.replay(args.id)
    if args.json:
        asking.print_json(asking.plain(done))
    else:
        again = "was there already as" if done.duplicate else "is"
        sys.stdout.write(f"the event of {done.replayed_from} {again} {done.msg_id} in {done.topic}\n")
    return 0


async def _pause(client: Client, args: argparse.Namespace) -> int:
    return _turned(args, await client.interop.pause(args.name), "is paused: its webhooks get 503")


async def _resume(client: Client, args: argparse.Namespace) -> int:
    return _turned(args, await client.interop.resume(args.name), "takes webhooks again")


def _turned(args: argparse.Namespace, shown: EndpointShown, said: str) -> int:
    if args.json:
        asking.print_json(asking.plain(shown))
    else:
        sys.stdout.write(f"{shown.name} {said}\n")
    return 0


# --- passing events on


async def _listen(client: Client, args: argparse.Namespace) -> int:
    """Take events as any consumer does, until Ctrl-C."""
    from penstock.cli.following import StoppableBlock
    from penstock.sdk.webhook_forwarding import WebhookForwarder

    topic = args.topic or await _topic(client, args)
    if topic is None:
        return _unknown(args)
    if not args.json:
        sys.stderr.write(f"passing events of {topic} on to {args.forward}; Ctrl-C ends this\n")
    with StoppableBlock():
        async with WebhookForwarder(client, args.forward, lambda told: _tell(args, told)) as forwarder:
            await client.mailbox.run(topic, _telling(args, forwarder), visibility_ms=10_000, drain_s=1.0)
    return 0


def _telling(args: argparse.Namespace, forwarder: WebhookForwarder) -> Handler:
    """Return a handler that says what becomes of an event which the program did not take."""
    from penstock.sdk import Reject

    async def handle(delivery: Delivery) -> None:
        try:
            await forwarder.handle(delivery)
        except Reject as refused:
            await delivery.nack(refused.reason, delay_ms=refused.delay_ms)
            _tell_given_back(args, delivery)

    return handle


def _tell_given_back(args: argparse.Namespace, delivery: Delivery) -> None:
    given = delivery.given_back
    if given is None:
        return
    if args.json:
        asking.print_json({"msg_id": delivery.msg_id, "given_back": asking.plain(given)})
        return
    redrive = f"penstock dlq redrive {delivery.topic} {delivery.msg_id}{running.said(args)}"
    again = f"given back after attempt {given.attempt}; it comes again in {given.visible_in_ms / 1000:.1f}s"
    dead = f"attempt {given.attempt} was the last: it is a dead letter now; {redrive} sends it once more"
    sys.stdout.write(f"  {dead if given.dead_lettered else again}\n")
    sys.stdout.flush()


async def _topic(client: Client, args: argparse.Namespace) -> str | None:
    """Find the endpoint's topic; whoever may not look at endpoints gets the default."""
    from penstock.kernel.errors import Forbidden

    try:
        known = {each.name: each.topic for each in await client.interop.endpoints()}
    except Forbidden:
        return f"webhooks/{args.name}"
    return known.get(args.name)


def _tell(args: argparse.Namespace, told: ForwardedWebhook) -> None:
    if args.json:
        asking.print_json(told._asdict())
        return
    from penstock.cli.payloads import printable

    named = printable(" ".join(filter(None, (told.event_type, told.event_id)))) or told.msg_id
    sys.stdout.write(f"{named}: {told.status or told.why}\n")
    sys.stdout.flush()
