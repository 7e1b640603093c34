"""`penstock token`: issue, narrow, seal, look into, verify and revoke capabilities. Narrowing needs no node."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
from pathlib import Path
from typing import Any

from penstock.cli import running
from penstock.kernel.errors import PenstockError

_TIMEOUT_S = 5.0
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
    verify = _offline(actions, "verify", "have the node judge a token", _verify)
    running.add(verify)
    for name in _CONTEXT:
        verify.add_argument(f"--{name}", help=f"the request's {name}")
    revoke = actions.add_parser("revoke", help="revoke by epoch, key, tenant, subject, token or block")
    running.add(revoke)
    which = revoke.add_mutually_exclusive_group(required=True)
    for name in _TARGETS:
        which.add_argument(f"--{name}", type=int if name == "epoch" else str)
    revoke.add_argument("--reason", default="", help="why, for the audit")
    revoke.add_argument("--force", action="store_true", help="even the operator himself")
    revoke.add_argument("--json", action="store_true", help="print one JSON object")
    revoke.set_defaults(action=_revoke)


def _add_issue(issue: argparse.ArgumentParser) -> None:
    running.add(issue)
    issue.add_argument("--subject", required=True, help="whom the token is for")
    issue.add_argument("--audience", action="append", required=True, help="who shall accept it; repeatable")
    issue.add_argument("--caveat", action="append", default=[], metavar="NAME=VALUE", help="repeatable: op=recv,ack")
    issue.add_argument("--tenant", help="whose quota it spends")
    issue.add_argument("--class", dest="class_", choices=("anon", "authed", "internal"), help="its traffic class")
    issue.add_argument("--ttl", type=int, metavar="SECONDS", help="how long it lives (default 900)")
    issue.add_argument("--json", action="store_true", help="print one JSON object")
    issue.set_defaults(action=_issue)


def _offline(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - argparse's own type is private
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    parser.add_argument("token", help="the token, or - to read it from standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(action=act)
    return parser


def run(args: argparse.Namespace) -> int:
    """Do what was asked; a refusal is one sentence and exit 1."""
    if getattr(args, "token", "") == "-":
        args.token = sys.stdin.readline().strip()
    try:
        return int(args.action(args))
    except PenstockError as error:
        sys.stderr.write(f"penstock: {error.detail}\n")
        return 1
    except (OSError, http.client.HTTPException, ValueError) as error:
        sys.stderr.write(f"penstock: the node did not answer: {error}\n")
        return 1


# --- offline -----------------------------------------------------------------------------------------------------------


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
        "via": [[one.hex() for one in level] for level in root.via],
        "blocks": [list(map(str, caveats)) for caveats in (root.caveats, *(block.caveats for block in token.blocks))],
        "rids": [value[:16].hex() for value in token.chain()],
        "sealed": token.proof[0] == SEALED,
        "proven": False,
    }
    return _say(args, said)


def _say(args: argparse.Namespace, said: dict[str, Any]) -> int:
    if args.json:
        sys.stdout.write(json.dumps(said) + "\n")
        return 0
    width = max(map(len, said))
    for name, value in said.items():
        sys.stdout.write(f"{name:<{width}}  {value if isinstance(value, str) else json.dumps(value)}\n")
    return 0


# --- by the node -------------------------------------------------------------------------------------------------------


def _issue(args: argparse.Namespace) -> int:
    body: dict[str, Any] = {"subject_ref": args.subject, "audience": args.audience, "caveats": args.caveat}
    given = {"tenant": args.tenant, "class": args.class_, "ttl_s": args.ttl}
    body.update({name: value for name, value in given.items() if value is not None})
    issued = _ask(args, "/v1/passport/issue", body)
    return _say(args, issued) if args.json else _say_token(args, issued["token"])


def _verify(args: argparse.Namespace) -> int:
    context = {name: getattr(args, name) for name in _CONTEXT if getattr(args, name) is not None}
    verdict = _ask(args, "/v1/passport/verify", {"token": args.token, "context": context})
    _say(args, verdict)
    return 0 if verdict["ok"] else 1


def _revoke(args: argparse.Namespace) -> int:
    named = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in _TARGETS}
    body = {name: value for name, value in named.items() if value is not None}
    return _say(args, _ask(args, "/v1/passport/revoke", {**body, "reason": args.reason, "force": args.force}))


def _ask(args: argparse.Namespace, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", _port(args.data_dir), timeout=_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {_capability(args.data_dir)}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        said: dict[str, Any] = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status >= http.client.BAD_REQUEST:
        raise PenstockError(f"{said.get('detail', answer.reason)} ({said.get('reason', said.get('code'))})")
    return said


def _capability(data_dir: Path) -> str:
    """Return the capability to act with: the environment's, else the operator's."""
    try:
        return os.environ.get("PENSTOCK_TOKEN") or (data_dir / "operator.token").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _port(data_dir: Path) -> int:
    try:
        return int(json.loads((data_dir / "run" / "ports.json").read_text(encoding="ascii"))["passport"])
    except (OSError, ValueError, KeyError) as exc:
        raise PenstockError("no node with svc-passport is running here: start one, or name its --data-dir") from exc
