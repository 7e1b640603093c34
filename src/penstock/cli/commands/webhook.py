"""`penstock webhook`: sign a body as a provider would, to try an endpoint out. Needs no running node."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import settings as options

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.services.interop.signing import SignedDelivery

_SEND_S = 10.0


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
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
