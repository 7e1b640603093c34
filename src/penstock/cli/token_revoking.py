"""`penstock token revoke` and `rotate`: take tokens back, and sign with another key."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import asking, confirming

if TYPE_CHECKING:
    from penstock.sdk import Client

# What can be revoked, and what that refuses from now on.
_TARGETS: Final = {
    "epoch": "every token of an epoch below this one; one more than the current epoch refuses all there are",
    "kid": "every token that this key signed; another key takes its place",
    "tenant": "every token of this tenant",
    "subject-ref": "every token that was issued to this --subject, and whatever was issued with those",
    "tid": "one token, with all its narrowings (penstock token list shows the tid)",
    "rid": "one narrowing of a token (penstock token inspect shows the rids)",
}
# What a revocation names, and how that is called in what was issued.
_NAMED_BY: Final = {"tid": "tid", "subject_ref": "sub", "kid": "kid", "tenant": "tenant"}
# Tokens are counted for so long before they are revoked.
_COUNT_S: Final = 2.0
_ALL: Final = "all"


def add(actions: Any) -> None:  # noqa: ANN401 - a private type of argparse
    """Declare the two actions and their options."""
    revoke = actions.add_parser(
        "revoke", help="revoke by key, tenant, subject, token or block; by epoch; or everything"
    )
    which = revoke.add_mutually_exclusive_group(required=True)
    for name, text in _TARGETS.items():
        which.add_argument(f"--{name}", type=int if name == "epoch" else str, help=text)
    which.add_argument(
        "--all", action="store_true", help="every token issued so far; the operator's own is replaced at once"
    )
    revoke.add_argument("--reason", default="", help="why, for the audit")
    revoke.add_argument("--force", action="store_true", help="the operator's own token too")
    confirming.add(revoke)
    asking.add(revoke)
    revoke.set_defaults(action=_revoke)
    rotate = actions.add_parser("rotate", help="sign with a new key; tokens of the old one stay good for its grace")
    asking.add(rotate)
    rotate.set_defaults(action=_rotate)


def _revoke(args: argparse.Namespace) -> int:
    if args.all:
        return _revoke_all(args)
    named = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in _TARGETS}
    target: Any = {name: value for name, value in named.items() if value is not None}
    ((kind, value),) = target.items()
    what = f"{kind.replace('_ref', '')} {value}"

    async def work(client: Client) -> int:
        hit = await _good_tokens(client, kind, value)
        epoch = await client.passport.revoke(**target, reason=args.reason, force=args.force)
        # The node refuses a key that it lacks. With --force it is the operator's own token, which is not listed.
        nothing = hit == 0 and kind != "kid" and not args.force
        if args.json:
            asking.print_json({"revoked": target, "tokens": hit, "current_epoch": epoch})
        elif not nothing:
            sys.stdout.write(f"revoked {what}{_known(hit)}; the epoch is {epoch} now\n")
        if nothing:
            recorded = f"the revocation is recorded, and the epoch is {epoch} now"
            sys.stderr.write(
                f"penstock: no good token is known of {what}, so nothing changed for anybody; {recorded}\n"
            )
        return asking.FAILED if nothing else 0

    return asking.ask(args, work)


def _revoke_all(args: argparse.Namespace) -> int:
    """Raise the epoch by one, which refuses every token there is."""
    question = "Revoke every token issued so far? Every program needs a new one. Write all to do it: "
    without = "every token issued so far would be refused; say --yes to do it"
    code = confirming.declined(args, question, _ALL, without)
    if code is not None:
        return code

    async def work(client: Client) -> int:
        now = (await client.passport.revocations()).current_epoch
        epoch = await client.passport.revoke(epoch=now + 1, reason=args.reason, force=True)
        if args.json:
            asking.print_json({"revoked": {"epoch": now + 1}, "tokens": None, "current_epoch": epoch})
        else:
            sys.stdout.write(f"revoked every token issued so far; the epoch is {epoch} now\n")
        return 0

    return asking.ask(args, work)


def _rotate(args: argparse.Namespace) -> int:
    async def work(client: Client) -> int:
        done = await client.passport.rotate()
        if args.json:
            asking.print_json(asking.plain(done))
        else:
            sys.stdout.write(
                f"new tokens are signed with {done.kid}; those of the old key stay good for"
                " passport.issuer_policy.grace (10m unless you set it)\n"
            )
        return 0

    return asking.ask(args, work)


def _known(hit: int | None) -> str:
    from penstock.wire.plain_words import counted

    return "" if hit is None else f": {counted(hit, 'token')} no longer good"


async def _good_tokens(client: Client, kind: str, value: object) -> int | None:
    """Count the good tokens that a revocation names; None where that cannot be told, or not within a moment."""
    from penstock.kernel.deadline import timeout
    from penstock.kernel.errors import PenstockError

    name = _NAMED_BY.get(kind)
    if name is None:
        return None
    try:
        async with timeout("issued", _COUNT_S):
            return len([1 async for token in client.passport.issued() if getattr(token, name) == value])
    except PenstockError:
        # The token may revoke and not look; and a revocation does not wait for a figure.
        return None
