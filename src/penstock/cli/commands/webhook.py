"""`penstock webhook`: look at webhooks, replay them, pause endpoints, pass events on; sign a body to try one out."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import asking
from penstock.cli import settings as options

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.contracts.interop import DeliveryOpened, EndpointShown
    from penstock.sdk import Client
    from penstock.sdk.webhook_forwarding import ForwardedWebhook
    from penstock.services.interop.signing import SignedDelivery

_SEND_S = 10.0
_OUTCOMES = ("accepted", "duplicate", "handshake", "refused", "failed")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    shown = _asking(actions, "list", "show endpoints and the last deliveries", _list)
    shown.add_argument("name", nargs="?", help="only of this endpoint")
    shown.add_argument("--outcome", choices=_OUTCOMES, help="only deliveries with this outcome")
    shown.add_argument("--max", type=int, default=20, metavar="N", help="at most so many deliveries (default 20)")
    _asking(actions, "show", "show one delivery with its event", _show).add_argument("id", help="its id or corr_id")
    replay = _asking(actions, "replay", "put the event of a delivery into its topic once more", _replay)
    replay.add_argument("id", help="its id or corr_id")
    _asking(actions, "pause", "let no webhook of an endpoint in", _pause).add_argument("name", help="the endpoint")
    _asking(actions, "resume", "let the webhooks of an endpoint in again", _resume).add_argument("name")
    listen = _asking(actions, "listen", "pass webhooks on to a program of yours as they come", _listen)
    listen.add_argument("name", help="the endpoint")
    listen.add_argument("--forward", required=True, metavar="URL", help="where the program listens")
    listen.add_argument("--topic", help="take events from this topic (default: the endpoint's)")
    _add_sign(actions)


def _asking(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - private types
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    asking.add(parser)
    parser.set_defaults(action=lambda args: asking.ask(args, lambda client: act(client, args)))
    return parser


def _add_sign(actions: Any) -> None:  # noqa: ANN401 - a private type of argparse
    sign = actions.add_parser("sign", help="print a correctly signed curl line for a file, or send it")
    sign.add_argument("name", help="the endpoint, as in [interop.providers.NAME]")
    sign.add_argument("file", type=Path, help="the body")
    sign.add_argument("--send", action="store_true", help="send it, and print what came back")
    sign.add_argument("--url", help="where the bridge is (default: interop.public_url, else its address)")
    sign.add_argument("--content-type", default="application/json", help="the body's type")
    options.add(sign)
    sign.set_defaults(action=_sign)


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
            await client.mailbox.run(topic, forwarder.handle, visibility_ms=10_000, drain_s=1.0)
    return 0


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


# --- trying an endpoint out, which needs no running node


def _sign(args: argparse.Namespace) -> int:
    from penstock.node.services import schema
    from penstock.services.interop.providers.verdict import BadWebhookSetup

    settings = options.load_or_explain(schema(), options.sources(args))
    if settings is None:
        return options.BAD_CONFIG
    try:
        signed = _signed(args, settings)
    except (BadWebhookSetup, OSError) as exc:
        sys.stderr.write(f"penstock: {getattr(exc, 'strerror', None) or exc}\n")
        return 1
    if args.send:
        return _send(signed)
    sys.stdout.write(signed.curl(str(args.file)) + "\n")
    return 0


def _signed(args: argparse.Namespace, settings: Settings) -> SignedDelivery:
    from penstock.kernel.clock import SYSTEM
    from penstock.services.interop.config import endpoints_of
    from penstock.services.interop.providers.verdict import BadWebhookSetup
    from penstock.services.interop.signing import WebhookTrial, sign_delivery

    endpoint = endpoints_of(settings).get(args.name)
    if endpoint is None:
        raise BadWebhookSetup(
            f"There is no endpoint {args.name!r}; add [interop.providers.{args.name}] to the settings."
        )
    public, address = settings["interop.public_url"], settings.address("interop.bind_addr")
    base = args.url or public or f"http://{address}"
    trial = WebhookTrial(
        kind=endpoint.kind,
        url=f"{str(base).rstrip('/')}/webhooks/{args.name}",
        body=args.file.read_bytes(),
        now=SYSTEM.wall(),  # lint: allow PK012 providers sign wall times
        event_id=f"msg_{os.urandom(8).hex()}",
        content_type=args.content_type,
    )
    return sign_delivery(endpoint.verifier, trial)


def _send(signed: SignedDelivery) -> int:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    fields = {name.decode("ascii"): value.decode("utf-8") for name, value in signed.fields}
    # The URL is the operator's own: from the settings or the command line.
    request = Request(signed.url, data=signed.body, headers=fields, method="POST")  # noqa: S310
    try:
        with urlopen(request, timeout=_SEND_S) as answer:  # noqa: S310
            status, body = answer.status, answer.read()
    except HTTPError as refused:
        status, body = refused.code, refused.read()
    except URLError as exc:
        sys.stderr.write(f"penstock: {signed.url} cannot be reached: {exc.reason}\n")
        return 1
    sys.stdout.write(f"{status} {body.decode('utf-8', 'replace')}\n")
    return 0 if status < 300 else 1
