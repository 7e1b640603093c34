"""`penstock token`: issue, narrow, seal, inspect, verify and revoke capabilities. Narrowing needs no node."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.capability.token import IssuingLevel
    from penstock.sdk import Client
    from penstock.sdk.passport import IssueOptions

_TARGETS = ("epoch", "kid", "tenant", "subject-ref", "tid", "rid")
_CONTEXT = ("aud", "op", "topic", "method", "route", "ip", "tenant", "region")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    _add_issue(actions.add_parser("issue", help="mint a token that your capability covers"))
    narrow = _offline(actions, "attenuate", "narrow a token, offline", _attenuate)
    narrow.add_argument(
        "--caveat", action="append", required=True, metavar="NAME=VALUE", help="repeatable: op=recv,ack"
    )
    narrow.add_argument("--seal", action="store_true", help="and end the narrowing")
    _offline(actions, "seal", "end the narrowing of a token, offline", _seal)
    _offline(actions, "inspect", "show what a token says, offline and unproven", _inspect)
    verify = actions.add_parser("verify", help="have the node judge a token")
    _add_token(verify)
    asking.add(verify)
    verify.set_defaults(action=_verify)
    for name in _CONTEXT:
        verify.add_argument(f"--{name}", help=f"the request's {name}")
    revoke = actions.add_parser("revoke", help="revoke by epoch, key, tenant, subject, token or block")
    which = revoke.add_mutually_exclusive_group(required=True)
    for name in _TARGETS:
        which.add_argument(f"--{name}", type=int if name == "epoch" else str)
    revoke.add_argument("--reason", default="", help="why, for the audit")
    revoke.add_argument("--force", action="store_true", help="even the operator himself")
    asking.add(revoke)
    revoke.set_defaults(action=_revoke)


def _add_issue(issue: argparse.ArgumentParser) -> None:
    issue.add_argument("--subject", required=True, help="whom the token is for")
    issue.add_argument("--audience", action="append", required=True, help="who shall accept it; repeatable")
    issue.add_argument("--caveat", action="append", default=[], metavar="NAME=VALUE", help="repeatable: op=recv,ack")
    issue.add_argument("--tenant", help="whose quota it spends")
    issue.add_argument("--class", dest="class_", choices=("anon", "authed", "internal"), help="its traffic class")
    issue.add_argument("--ttl", type=_seconds, metavar="TIME", help="how long it lives: 10m, or seconds (default 900)")
    asking.add(issue)
    issue.set_defaults(action=_issue)


def _offline(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - private type
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    _add_token(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(action=lambda args: _by_itself(args, act))
    return parser


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", help="the token, or - to read it from standard input")


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else asking.duration_ms(text) // 1000


def run(args: argparse.Namespace) -> int:
    """Do what was asked; a refusal is one sentence and an exit code."""
    if getattr(args, "token", "") == "-":
        args.token = sys.stdin.readline().strip()
    return int(args.action(args))


def _by_itself(args: argparse.Namespace, act: Callable[[argparse.Namespace], int]) -> int:
    """Do what needs no node, and report errors in a token or caveat in a node's words."""
    from penstock.kernel.errors import PenstockError

    try:
        return act(args)
    except PenstockError as error:
        return asking.explain(args, error)


# --- offline ---------------------------------------------------------------------------------------------------------


def _attenuate(args: argparse.Namespace) -> int:
    from penstock.capability.caveats import parse_all
    from penstock.capability.making import attenuate, seal

    token = attenuate(args.token, parse_all(args.caveat))
    return _say_token(args, seal(token) if args.seal else token)


def _seal(args: argparse.Namespace) -> int:
    from penstock.capability.making import seal

    return _say_token(args, seal(args.token))


def _say_token(args: argparse.Namespace, token: str) -> int:
    sys.stdout.write((json.dumps({"token": token}) if args.json else token) + "\n")
    return 0


def _inspect(args: argparse.Namespace) -> int:
    from penstock.capability.token import SEALED, decode

    token = decode(args.token)
    root = token.root
    said = {
        "kid": root.kid,
        "alg": root.alg,
        "epoch": root.epoch,
        "iss": root.iss,
        "aud": list(root.aud),
        "sub": root.sub,
        "tenant": root.owner,
        "class": root.class_,
        "iat": root.iat,
        "nbf": root.nbf,
        "exp": root.exp,
        "tid": root.tid.hex(),
        "via": [_level(level) for level in root.via],
        "blocks": [list(map(str, caveats)) for caveats in (root.caveats, *(block.caveats for block in token.blocks))],
        "rids": [value[:16].hex() for value in token.chain()],
        "sealed": token.proof[0] == SEALED,
        "proven": False,
    }
    return _say(args, said)


def _level(level: IssuingLevel) -> dict[str, Any]:
    ids = [one.hex() for one in level.ids]
    named = {"sub": level.sub, "tenant": level.owner, "kid": level.kid, "epoch": level.epoch}
    return {"tid": ids[0], "rids": ids[1:], **(named if level.sub else {})}


def _say(args: argparse.Namespace, said: dict[str, Any]) -> int:
    if args.json:
        sys.stdout.write(json.dumps(said) + "\n")
        return 0
    width = max(map(len, said))
    for name, value in said.items():
        sys.stdout.write(f"{name:<{width}}  {value if isinstance(value, str) else json.dumps(value)}\n")
    return 0


# --- by the node -----------------------------------------------------------------------------------------------------


def _issue(args: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        said: IssueOptions = {"caveats": args.caveat, "tenant": args.tenant}
        if args.class_ is not None:
            said["traffic_class"] = args.class_
        if args.ttl is not None:
            said["ttl_s"] = args.ttl
        issued = await client.passport.issue(args.subject, args.audience, **said)
        return _say(args, asking.plain(issued)) if args.json else _say_token(args, issued.token)

    return asking.ask(args, work)


def _verify(args: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        from penstock.contracts.capability import RequestContext

        context = RequestContext(**{name: getattr(args, name) for name in _CONTEXT})
        verdict = await client.passport.verify(args.token, context)
        _say(args, {"ok": verdict.ok, "reason": verdict.reason, **asking.plain(verdict)})
        return 0 if verdict.ok else 1

    return asking.ask(args, work)


def _revoke(args: argparse.Namespace) -> int:
    named = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in _TARGETS}
    target: Any = {name: value for name, value in named.items() if value is not None}

    async def work(client: Client) -> int:
        epoch = await client.passport.revoke(**target, reason=args.reason, force=args.force)
        return _say(args, {"current_epoch": epoch})

    return asking.ask(args, work)
