"""Tokens by what they are for: a worker's, a producer's. And caveats that shut each other out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.capability.caveats import Caveat, parse_all
from penstock.capability.covers import prefix_within
from penstock.capability.families import SCOPED, CaveatKind
from penstock.capability.judging import SEPARATORS
from penstock.sdk.passport import worker_caveats

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_STORE_OPS: Final = ("get", "put")
_STAR: Final = "*"


class TokenScope(NamedTuple):
    """Who shall accept a token, and what it is narrowed to."""

    audience: Sequence[str]
    caveats: Sequence[str]


def fault_of(args: argparse.Namespace) -> str:
    """Say what is missing or too much in the options; empty when they fit together."""
    if args.for_ is None:
        if not args.subject:
            return "--subject says whom the token is for"
        if args.topic or args.send or args.store:
            return "--topic, --send and --store go with --for worker or --for producer; else say --caveat"
        return "" if args.audience else "--audience says who shall accept it, or --for worker what it is for"
    if args.audience:
        return f"--for {args.for_} names the audiences itself"
    if not args.topic:
        return f"--for {args.for_} needs the --topic it works on"
    if args.send and args.for_ == "producer":
        return "--send goes with --for worker; a producer sends anyway"
    if not set(_store_ops(args)) <= set(_STORE_OPS):
        return "--store takes get, put or get,put"
    return ""


def scope_of(args: argparse.Namespace) -> TokenScope:
    """Return what the options ask for; a role names its audiences, and scopes its caveats to them."""
    if args.for_ is None:
        return TokenScope(args.audience, args.caveat)
    for topic in args.topic:
        # Each on its own: an empty one among several would not be seen in the list.
        worker_caveats(topic, send=False, store=())
    audience, caveats = worker_caveats(",".join(args.topic), send=args.send, store=_store_ops(args))
    if args.for_ == "producer":
        caveats = ("svc-mailbox:op=send", *caveats[1:])
    return TokenScope(audience, (*caveats, *args.caveat))


def _store_ops(args: argparse.Namespace) -> tuple[str, ...]:
    """Return what a token may do in the store; each once, in the order in which it was said."""
    return tuple(dict.fromkeys(op for said in args.store for op in said.split(",")))


def topics_in_words(caveats: Sequence[Caveat]) -> str:
    """Say which topics a token covers, as the verifier matches them; empty where it names none."""
    named = [" or ".join(map(_topics_of, caveat.words)) for caveat in caveats if caveat.name == "topic"]
    return ", and of those only ".join(named)


def _topics_of(prefix: str) -> str:
    if prefix.endswith(_STAR):
        return f"all that begin with {prefix[:-1]}" if prefix != _STAR else "all"
    if prefix.endswith(SEPARATORS):
        return f"all below {prefix}"
    return f"{prefix} and what goes on after it with / : or ."


def contradiction(scope: TokenScope) -> str:
    """Name two caveats that no request can satisfy together; empty where there are none."""
    caveats = [caveat for caveat in parse_all(scope.caveats) if caveat.name in SCOPED]
    for n, one in enumerate(caveats):
        for other in caveats[n + 1 :]:
            if one.name == other.name and _meet(one, other) and not _agree(one, other):
                where = one.scope or other.scope or "any service"
                return f"{one} and {other} have nothing in common: such a token could do nothing at {where}"
    return ""


def _meet(one: Caveat, other: Caveat) -> bool:
    """Tell whether two caveats count at the same service."""
    return not one.scope or not other.scope or one.scope == other.scope


def _agree(one: Caveat, other: Caveat) -> bool:
    if one.family.kind is CaveatKind.PREFIX:
        pairs = [(a, b) for a in one.words for b in other.words]
        return any(prefix_within(a, b) or prefix_within(b, a) for a, b in pairs)
    return not set(one.words).isdisjoint(other.words) or _STAR in (*one.words, *other.words)
