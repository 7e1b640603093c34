"""`penstock sqs`: access keys for AWS SQS clients, and the environment that points them at a running node."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import asking

if TYPE_CHECKING:
    from penstock.sdk import Client

_KEYS = "/v1/sqs/keys"
_QUEUES = "sqs/"
_SERVED = (
    "A node serves it at its gateway and at svc-interop where these listen on a loopback address, elsewhere with "
    'interop.sqs.enabled = "on".'
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)
    env = actions.add_parser("env", help="print the variables that an AWS client reads: eval $(penstock sqs env)")
    asking.add(env)
    env.set_defaults(action=_env)
    key = actions.add_parser("key", help="make, list or revoke access keys")
    doing = key.add_subparsers(metavar="action", required=True)
    create = doing.add_parser("create", help="make a key; its secret is printed once")
    create.add_argument("--name", default="", help="what people call it")
    create.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="PREFIX",
        help="only queues whose topic begins so: sqs/orders; repeatable",
    )
    create.add_argument("--op", action="append", help="only this: send, recv, ack, nack or admin; repeatable")
    create.add_argument("--tenant", default="", help="whose share of the mailbox counts what is sent with it")
    asking.add(create)
    create.set_defaults(action=_create)
    shown = doing.add_parser("list", help="show the keys, without their secrets")
    asking.add(shown)
    shown.set_defaults(action=_list)
    revoke = doing.add_parser("revoke", help="refuse a key from now on")
    revoke.add_argument("id", help="the access key id")
    asking.add(revoke)
    revoke.set_defaults(action=_revoke)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return asking.ask(args, lambda client: args.action(client, args))


async def _ask(client: Client, args: argparse.Namespace, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Ask svc-interop, with the operator's token."""
    import msgspec

    from penstock.kernel.errors import NotFound
    from penstock.sdk.calling import Caller, PreparedCall, SdkOptions

    caller = Caller("interop", client.place, client.inventory, SdkOptions(timeout_s=args.timeout / 1000))
    sent = b"" if body is None else msgspec.json.encode(body)
    try:
        ask = PreparedCall(method=method, path=path, body=sent, idempotent=method == "GET")
        return await caller.json(ask, dict[str, Any])
    except NotFound as error:
        if not path.startswith(f"{_KEYS}/"):
            # Nothing else is looked for by these paths.
            raise NotFound("This URL serves no SQS.", hint=_SERVED) from error
        raise
    finally:
        await caller.close()


async def _env(client: Client, args: argparse.Namespace) -> int:
    told = await _ask(client, args, "GET", "/v1/sqs/env")
    if args.json:
        asking.print_json(told)
        return 0
    variables = {
        "AWS_ENDPOINT_URL_SQS": told["endpoint"],
        "AWS_ACCESS_KEY_ID": told["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": told["secret_access_key"],
        "AWS_DEFAULT_REGION": told["region"],
    }
    if told["endpoint"].startswith("https:") and (ca := getattr(client.place, "ca", None)):
        # AWS clients trust the system's authorities alone unless they are told of another.
        variables["AWS_CA_BUNDLE"] = str(ca.absolute())
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    sys.stdout.write(f"export {words}\n")
    return 0


async def _create(client: Client, args: argparse.Namespace) -> int:
    stray = next((topic for topic in args.topic if not topic.startswith(_QUEUES)), None)
    if stray is not None:
        said = f"--topic {stray}: the topics of SQS queues begin with {_QUEUES}; did you mean {_QUEUES}{stray}?"
        return asking.refuse(args, said)
    asked: dict[str, object] = {"name": args.name}
    asked |= {"topics": args.topic} if args.topic else {}
    asked |= {"ops": args.op} if args.op else {}
    asked |= {"tenant": args.tenant} if args.tenant else {}
    made = await _ask(client, args, "POST", _KEYS, asked)
    if args.json:
        asking.print_json(made)
    else:
        sys.stdout.write(f"AWS_ACCESS_KEY_ID={made['access_key_id']}\n")
        sys.stdout.write(f"AWS_SECRET_ACCESS_KEY={made['secret_access_key']}\n")
    return 0


async def _list(client: Client, args: argparse.Namespace) -> int:
    found = (await _ask(client, args, "GET", _KEYS))["keys"]
    for key in found:
        if args.json:
            asking.print_json(key)
        else:
            row = (key["access_key_id"], key["name"] or "-", ",".join(key["topics"]), ",".join(key["ops"]))
            sys.stdout.write("  ".join(row) + "\n")
    return 0


async def _revoke(client: Client, args: argparse.Namespace) -> int:
    from urllib.parse import quote

    gone = await _ask(client, args, "DELETE", f"{_KEYS}/{quote(args.id, safe='')}")
    if args.json:
        asking.print_json(gone)
    else:
        sys.stdout.write(f"{gone['access_key_id']} is refused from now on\n")
    return 0
