"""`penstock webhook sign`: has the node sign a body as the provider would, prints it as a curl line or sends it.

The node knows the endpoint, its secret and where it listens. Where the configuration is named (--config, --set), or no
node runs, the body is signed here by the settings, as `penstock up` would read them.
"""

from __future__ import annotations

import argparse
import base64
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import asking, running
from penstock.cli import settings as options

if TYPE_CHECKING:
    import ssl

    from penstock.sdk.remote_place import NodePlace
    from penstock.services.interop.signing import SignedDelivery

_SEND_S = 10.0
_ELSEWHERE = (
    "the node at {} signs nothing by its gateway: run this on the node's machine, by its data directory; or give"
    " --config FILE (or --set) with the endpoint, and --url where it shall be sent"
)
_PATH = "/v1/node/webhooks/sign"


@dataclass(frozen=True, slots=True)
class SignedTrial:
    """A signed request without its host, and the places it can be sent to."""

    delivery: SignedDelivery
    # Where the provider sends to, as configured; and where the bridge listens.
    public_url: str | None
    bridge_url: str | None


def add(actions: Any) -> None:  # noqa: ANN401 - a private type of argparse
    """Declare the action and its options."""
    sign = actions.add_parser("sign", help="print a correctly signed curl line for a file, or send it")
    sign.add_argument("name", help="the endpoint, as in [interop.providers.NAME]")
    sign.add_argument("file", type=Path, help="the body")
    sign.add_argument("--send", action="store_true", help="send it to the node, and print what came back")
    sign.add_argument(
        "--url",
        help="where it is sent to, a bridge's or a gateway's URL; not which node signs (default: where the node"
        " listens; printed: interop.public_url)",
    )
    sign.add_argument("--ca", type=Path, metavar="FILE", help="certificates that the one at --url is held against")
    sign.add_argument("--context", metavar="NAME", help="the node that signs, by its name in penstock context")
    sign.add_argument("--content-type", default="application/json", help="the body's type")
    options.add(sign)
    sign.set_defaults(action=_by_itself)


def _by_itself(args: argparse.Namespace) -> int:
    from penstock.kernel.errors import NotFound, PenstockError
    from penstock.services.interop.providers.verdict import BadWebhookSetup

    node = _signer(args)
    try:
        return _sign(args, node)
    except OSError as error:
        what = f"{error.filename or args.file} cannot be read"
        return running.refuse(node, f"{what}: {error.strerror or error}", code="malformed")
    except BadWebhookSetup as bad:
        return running.refuse(node, str(bad), code="malformed")
    except NotFound:
        # Only the settings of this machine were looked into: a node that refuses has said so itself.
        return running.refuse(node, _unknown(args, node), code="not_found")
    except PenstockError as error:
        return asking.explain(node, error)


def _unknown(args: argparse.Namespace, node: argparse.Namespace) -> str:
    said = f"There is no endpoint {args.name!r} in the settings"
    if args.config is not None or args.set:
        return f"{said}: [interop.providers.{args.name}] makes one."
    where = (running.directory(node) or Path()).absolute()
    return f"{said} here, and no node that takes webhooks runs in {where}: name its --data-dir, or give --config FILE."


def _signer(args: argparse.Namespace) -> argparse.Namespace:
    """Return the options that lead to the node that signs: --url and --ca are about where the request goes."""
    where = Path(args.data_dir) if args.data_dir else None
    return argparse.Namespace(url=None, context=args.context, token_file=None, ca=None, json=False, data_dir=where)


def _sign(args: argparse.Namespace, node: argparse.Namespace) -> int:
    from penstock.sdk.remote_place import RemotePlace

    place = running.place(node)
    here = args.config is not None or bool(args.set)
    if not here and isinstance(place, RemotePlace):
        return running.refuse(node, _ELSEWHERE.format(place.url("interop")), code="unsupported")
    trial = _by_node(args, node, place) if not here and _can_sign(place) else _by_settings(args, place)
    if trial is None:
        return options.BAD_CONFIG if args.config or args.set else asking.FAILED
    if args.send:
        url = args.url or trial.bridge_url or trial.public_url
        return _send(_at(trial, url), _trust(args, place))
    url = args.url or trial.public_url or trial.bridge_url
    sys.stdout.write(_at(trial, url).curl(str(args.file), None if args.ca is None else str(args.ca)) + "\n")
    return 0


def _at(trial: SignedTrial, url: str | None) -> SignedDelivery:
    return replace(trial.delivery, url=f"{str(url).rstrip('/')}{trial.delivery.url}")


def _can_sign(place: NodePlace) -> bool:
    """Tell whether a node of this machine runs there, with its admin listener."""
    from penstock.sdk.errors import NoNode
    from penstock.sdk.remote_place import RemotePlace

    try:
        return not isinstance(place, RemotePlace) and {"admin", "interop"} <= set(place.services())
    except NoNode:
        return False


def _by_node(args: argparse.Namespace, node: argparse.Namespace, place: NodePlace) -> SignedTrial | None:
    from penstock.services.interop.signing import SignedDelivery

    body = args.file.read_bytes()
    asked = {"name": args.name, "body_b64": base64.b64encode(body).decode("ascii"), "content_type": args.content_type}
    told = running.fetch(node, "POST", _PATH, asked)
    if told is None:
        return None
    fields = tuple((name.encode("ascii"), value.encode("utf-8")) for name, value in told["fields"])
    return SignedTrial(
        SignedDelivery(url=told["target"], fields=fields, body=body), told["public_url"], place.url("interop")
    )


def _by_settings(args: argparse.Namespace, place: NodePlace) -> SignedTrial | None:
    from penstock.kernel.clock import SYSTEM
    from penstock.node.services import schema
    from penstock.node.webhook_signer import SignWebhook, signed

    settings = options.load_or_explain(schema(), options.sources(args))
    if settings is None:
        return None
    asked = SignWebhook(name=args.name, body=args.file.read_bytes(), content_type=args.content_type)
    made = signed(settings, SYSTEM, asked)
    public = settings["interop.public_url"]
    return SignedTrial(
        made,
        None if public is None else str(public),
        _bridge(place) or f"http://{settings.address('interop.bind_addr')}",
    )


def _bridge(place: NodePlace) -> str | None:
    """Return where the bridge of the running node listens; the gateway leads to it where the node has a URL."""
    from penstock.kernel.errors import PenstockError

    try:
        return place.url("interop")
    except PenstockError:
        return None


def _trust(args: argparse.Namespace, place: NodePlace) -> ssl.SSLContext | None:
    """Return what the certificate is held against: a given file, the node's own, else the system's authorities."""
    from penstock.kernel.errors import PenstockError
    from penstock.sdk.remote_place import trusting

    if args.ca is not None:
        return trusting(args.ca)
    try:
        return None if args.url else place.context("interop")
    except PenstockError:
        return None


def _send(signed: SignedDelivery, trust: ssl.SSLContext | None) -> int:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    fields = {name.decode("ascii"): value.decode("utf-8") for name, value in signed.fields}
    try:
        # The URL is the operator's own: from the settings or the command line.
        request = Request(signed.url, data=signed.body, headers=fields, method="POST")  # noqa: S310
        with urlopen(request, timeout=_SEND_S, context=trust) as answer:  # noqa: S310
            status, body = answer.status, answer.read()
    except HTTPError as refused:
        status, body = refused.code, refused.read()
    except (URLError, OSError, ValueError) as exc:
        sys.stderr.write(f"penstock: {_unreached(signed.url, getattr(exc, 'reason', None) or exc)}\n")
        return asking.FAILED
    sys.stdout.write(f"{status} {body.decode('utf-8', 'replace')}\n")
    return 0 if status < 300 else asking.FAILED


def _unreached(url: str, why: object) -> str:
    """Say why nothing could be sent, in the words of the other commands."""
    from penstock.cli.failing import nothing_answers
    from penstock.sdk.reach_hints import reach_hint

    # That of a bad certificate has a short text of its own beside the one with codes.
    said = str(getattr(why, "verify_message", "") or getattr(why, "strerror", None) or why)
    return f"{nothing_answers(url, said)} {reach_hint(str(why))}".strip()
