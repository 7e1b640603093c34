"""`penstock token`: issue, narrow, seal, inspect, verify and revoke capabilities. Narrowing needs no node."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import asking, running, token_revoking
from penstock.cli.token_words import claims_in_words, inspected_in_words, until, verdict_in_words
from penstock.kernel.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.capability.token import IssuingLevel
    from penstock.sdk import Client

_NEW = "Get a new one (penstock token issue makes one), and name it by --token-file or PENSTOCK_TOKEN_FILE."
_STDIN = "-"
_CONTEXT = ("aud", "op", "topic", "method", "route", "ip", "tenant", "region")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    _add_issue(actions.add_parser("issue", help="issue a token that your capability covers"))
    narrow = _offline(actions, "attenuate", "narrow a token, offline", _attenuate)
    narrow.add_argument(
        "--caveat", action="append", required=True, metavar="NAME=VALUE", help="repeatable: op=recv,ack"
    )
    narrow.add_argument("--seal", action="store_true", help="and end the narrowing")
    _offline(actions, "seal", "end the narrowing of a token, offline", _seal)
    explain = _offline(actions, "explain", "say what a token is good for, offline and unproven", _explain)
    explain.add_argument("--against", metavar="REQUEST", help="judge a request, as 'send images/x' or 'get'")
    whoami = actions.add_parser("whoami", help="show whose token the commands use, and what it is good for")
    asking.add(whoami)
    whoami.set_defaults(action=show_own)
    issued = actions.add_parser("list", help="list the tokens that the node's audit knows, newest first")
    issued.add_argument("--all", action="store_true", help="those that have expired or were revoked, too")
    asking.add(issued)
    issued.set_defaults(action=_list)
    _offline(actions, "inspect", "show what a token says, offline and unproven", _inspect)
    verify = actions.add_parser("verify", help="have the node judge a token")
    _add_token(verify)
    asking.add(verify)
    verify.set_defaults(action=_verify)
    for name in _CONTEXT:
        verify.add_argument(f"--{name}", help=f"the request's {name}")
    token_revoking.add(actions)


def _add_issue(issue: argparse.ArgumentParser) -> None:
    issue.add_argument(
        "--subject", help="whom the token is for; it is revoked by this name (default: the role of --for)"
    )
    issue.add_argument("--audience", action="append", help="who shall accept it; repeatable")
    issue.add_argument(
        "--for",
        dest="for_",
        choices=("worker", "producer"),
        help="worker: take and settle messages of --topic; producer: send to it",
    )
    issue.add_argument(
        "--topic",
        action="append",
        default=[],
        help="with --for: this topic and all below it (orders covers orders/eu and orders.eu, not orders2); with / at"
        " its end only those below it; repeatable",
    )
    issue.add_argument("--send", action="store_true", help="of a worker: it may send to the topic too")
    issue.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="OPS",
        help="with --for: what it may do in the store: get, put or get,put; repeatable",
    )
    issue.add_argument("--caveat", action="append", default=[], metavar="NAME=VALUE", help="repeatable: op=recv,ack")
    issue.add_argument("--tenant", help="whose quota it spends")
    issue.add_argument(
        "--class", dest="class_", choices=("anon", "authed", "internal"), default="authed", help="its traffic class"
    )
    issue.add_argument(
        "--ttl", type=_seconds, default=900, metavar="TIME", help="how long it lives: 10m, or seconds (default 900)"
    )
    asking.add(issue)
    issue.set_defaults(action=_issue)


def _offline(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - private type
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    _add_token(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(action=lambda args: _by_itself(args, act))
    return parser


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", nargs="?", help="the token, or - to read it from standard input")
    parser.add_argument("--file", type=Path, help="a file that holds the token")


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else asking.duration_ms(text) // 1000


def run(args: argparse.Namespace) -> int:
    """Do what was asked; a refusal is one sentence and an exit code."""
    fault = _read_token(args) if hasattr(args, "token") else ""
    return asking.refuse(args, fault) if fault else int(args.action(args))


def _read_token(args: argparse.Namespace) -> str:
    """Put the token in its place, from wherever it was said to be; returns what is wrong with that, else nothing."""
    if (args.token is None) is (args.file is None):
        return "give the token, - to read it from standard input, or --file FILE; one of them"
    if args.token == _STDIN:
        args.token = sys.stdin.readline().strip()
    elif args.file is not None:
        try:
            args.token = args.file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            return f"{args.file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
    elif _is_file(args.token):
        return f"{args.token} is a file: say --file {args.token} to use the token in it"
    return ""


def _is_file(text: str) -> bool:
    with suppress(OSError, ValueError):
        return not text.startswith("psp1_") and Path(text).is_file()
    return False


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
    return _say(args, said if args.json else inspected_in_words(said, SYSTEM.wall()))


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
    return _by_itself(args, _issue_checked)


def _issue_checked(args: argparse.Namespace) -> int:
    from penstock.cli import token_roles

    fault = token_roles.fault_of(args)
    if fault:
        return asking.refuse(args, fault)
    scope = token_roles.scope_of(args)
    if fault := token_roles.contradiction(scope):
        return asking.refuse(args, fault)

    async def work(client: Client) -> int:
        issued = await client.passport.issue(
            args.subject or args.for_,
            scope.audience,
            caveats=scope.caveats,
            ttl_s=args.ttl,
            tenant=args.tenant,
            traffic_class=args.class_,
        )
        return _say(args, asking.plain(issued)) if args.json else _say_token(args, issued.token)

    return asking.ask(args, work)


def show_own(args: argparse.Namespace) -> int:
    """Show whose token the commands act with; the node says whether it is good."""

    async def work(client: Client) -> int:
        token = client.place.token()
        if not token:
            return asking.refuse(args, "no token is used: give --token-file or PENSTOCK_TOKEN, or name a --data-dir")
        verdict = await client.passport.verify(token)
        claims = asking.plain(verdict.claims) if verdict.claims is not None else {}
        if args.json:
            asking.print_json({"ok": verdict.ok, "reason": verdict.reason, **claims})
            return 0 if verdict.ok else 1
        if not verdict.ok:
            said = f"the node does not accept this token: {verdict.reason}. {_NEW}"
            return running.refuse(args, said, code="unauthenticated")
        _say(args, claims_in_words(claims, SYSTEM.wall()))
        return 0

    return asking.ask(args, work)


def _explain(args: argparse.Namespace) -> int:
    from penstock.capability.explaining import judge_offline, read_question, unjudged
    from penstock.capability.token import decode
    from penstock.cli import token_roles

    token = decode(args.token)
    asked = None if args.against is None else read_question(args.against)
    root = token.root
    said: dict[str, Any] = {"subject": root.sub, "tenant": root.owner, "class": root.class_}
    said |= {"audience": ", ".join(root.aud), "expires": until(root.exp, SYSTEM.wall())}
    said["may"] = "; ".join(map(str, token.caveats)) or "everything of its audience but admin, issue, revoke"
    if topics := token_roles.topics_in_words(token.caveats):
        said["topics"] = topics
    if asked is None:
        return _say(args, said)
    verdict = judge_offline(token, asked, SYSTEM.wall())
    said["against"] = args.against
    said["verdict"] = "allowed" if verdict.allowed else f"refused: {verdict.why} {verdict.hint}".rstrip()
    if open_ends := unjudged(token, asked):
        said["if also"] = ", ".join(open_ends)
    _say(args, {**said, "allowed": verdict.allowed} if args.json else said)
    return 0 if verdict.allowed else 1


def _list(args: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        found = [token async for token in client.passport.issued(include_ended=args.all)]
        if args.json:
            for token in found:
                asking.print_json(asking.plain(token))
            return 0
        from penstock.cli.token_tables import issued

        issued(found, SYSTEM.wall())
        return 0

    return asking.ask(args, work)


def _verify(args: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        from penstock.contracts.capability import RequestContext

        context = RequestContext(**{name: getattr(args, name) for name in _CONTEXT})
        verdict = await client.passport.verify(args.token, context)
        said = {"ok": verdict.ok, "reason": verdict.reason, **asking.plain(verdict)}
        _say(args, said if args.json else verdict_in_words(said, SYSTEM.wall()))
        return 0 if verdict.ok else 1

    return asking.ask(args, work)
