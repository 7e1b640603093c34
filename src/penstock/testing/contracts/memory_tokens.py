"""Tokens as opaque handles: a book of what each one grants, revocation floors, and the verifier that reads it.

There is no cryptography here. Everything else (times, epochs, caveats, reasons) follows the passport contract, so a
service built against this verifier meets no surprise with the real one.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.contracts.capability import Grant, RequestContext
from penstock.contracts.passport import Claims, Revocation, TokenState
from penstock.kernel.clock import Clock
from penstock.kernel.errors import Expired, Forbidden, Malformed, RateLimited, Unauthenticated

SKEW_S: Final = 60
GRACE_S: Final = 600
FEED_ENTRIES: Final = 1024
PREFIX: Final = "psp1_"


def is_under(value: str, prefix: str) -> bool:
    """Match a prefix on a boundary: itself, what follows `/`, `:` or `.`, or everything below a final separator."""
    if prefix.endswith(("/", ":", ".")):
        return value.startswith(prefix)
    return value == prefix or (value.startswith(prefix) and value[len(prefix)] in "/:.")


def _is_in(value: str, network: str) -> bool:
    return ipaddress.ip_address(value) in ipaddress.ip_network(network)


def _is(value: str, allowed: str) -> bool:
    return allowed in (value, "*")


# Caveat -> (attribute of the request, how one of its values is matched).
_MATCHED: Final[dict[str, tuple[str, Callable[[str, str], bool]]]] = {
    "aud": ("aud", _is),
    "op": ("op", _is),
    "method": ("method", _is),
    "tenant": ("tenant", _is),
    "region": ("region", _is),
    "topic": ("topic", is_under),
    "route": ("route", is_under),
    "ip": ("ip", _is_in),
}
_COUNTED: Final = ("budget.reqs", "budget.bytes")
_TIMED: Final = ("exp", "nbf")


def check_caveat(text: str) -> None:
    """Refuse a caveat this book cannot judge: at issue as well as at verify."""
    name, equals, value = text.partition("=")
    if not equals or not value or name not in (*_MATCHED, *_COUNTED, *_TIMED):
        raise Malformed(f"The caveat {name!r} is unknown.", reason="unknown_caveat")
    if name in (*_COUNTED, *_TIMED) and not value.isdecimal():
        raise Malformed(f"The caveat {name!r} takes a number.", reason="bad_caveat")


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """One layer of caveats; `rid` names it for revocation."""

    rid: str
    caveats: tuple[str, ...]


@dataclass(slots=True)
class _Entry:
    claims: Claims
    blocks: tuple[MemoryBlock, ...]


@dataclass(slots=True)
class MemoryFloors:
    """What was revoked: floors by level, and ids."""

    current: int = 0
    issuer: int = 0
    levels: dict[tuple[str, str], int] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    feed: deque[Revocation] = field(default_factory=lambda: deque(maxlen=FEED_ENTRIES))
    # Everything that holds now, by what it names: the snapshot for a reader that fell behind the feed.
    in_force: dict[tuple[str, str], Revocation] = field(default_factory=dict)
    seq: int = 0

    def hits(self, claims: Claims, rids: tuple[str, ...]) -> bool:
        """Tell whether a token is revoked: its epoch is below a floor that applies, or one of its ids is revoked."""
        named = [("kid", claims.kid), ("tenant", claims.tenant), ("subject_ref", claims.sub)]
        floor = max([self.issuer, *(self.levels.get(level, 0) for level in named)])
        return claims.epoch < floor or not self.ids.isdisjoint((claims.tid, *rids))


class TokenBook:
    """Every token handed out; also the Verifier of the capability contract."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._spent: dict[tuple[str, str], int] = {}
        self._next = 1
        self.floors = MemoryFloors()
        # kid -> when it stops verifying; None for the one that signs.
        self.kids: dict[str, float | None] = {"k1": None}

    def now_s(self) -> int:
        """Return Unix seconds: token times are wall times."""
        return int(self._clock.wall())

    def number(self) -> int:
        """Hand out the next number; ids are numbers in order."""
        self._next += 1
        return self._next - 1

    @property
    def kid(self) -> str:
        """Name the key that signs."""
        return next(kid for kid, until in self.kids.items() if until is None)

    # --- writing

    def add(self, claims: Claims) -> str:
        """Hand out a token for these claims."""
        number = self.number()
        token = f"{PREFIX}mem{number}"
        self._entries[token] = _Entry(claims, (MemoryBlock(f"r{number}", claims.caveats),))
        return token

    def attenuate(self, token: str, *caveats: str) -> str:
        """Narrow a token: a new handle with one block more. Only the conjunction can result."""
        for caveat in caveats:
            check_caveat(caveat)
        entry, number = self._find(token), self.number()
        narrowed = f"{token}.{number}"
        self._entries[narrowed] = _Entry(entry.claims, (*entry.blocks, MemoryBlock(f"r{number}", tuple(caveats))))
        return narrowed

    def rotate(self) -> str:
        """Sign with a new kid; the old one verifies for its grace."""
        self.kids[self.kid] = self._clock.monotonic() + GRACE_S
        fresh = f"k{len(self.kids) + 1}"
        self.kids[fresh] = None
        return fresh

    def handed_out(self) -> list[Claims]:
        """Return the claims of every token as it was issued, newest first."""
        return [entry.claims for entry in reversed(self._entries.values()) if len(entry.blocks) == 1]

    # --- judging

    def state_of(self, claims: Claims) -> TokenState:
        """Tell whether a token is still good as it was issued."""
        if self.floors.hits(claims, ()):
            return "revoked"
        return "good" if claims.exp > self.now_s() and self._kid_is_good(claims.kid) else "expired"

    def verify(
        self,
        token: str,
        context: RequestContext,
        *,
        cost_bytes: int = 0,
        charged: bool = False,
        waived: frozenset[str] = frozenset(),
    ) -> Grant:
        """Judge a token for a request, strictly but for what is waived, and charge its budgets unless that was done."""
        entry = self.standing(token)
        self._judge(entry, context, waived)
        if not charged:
            self._charge(entry, cost_bytes)
        return _grant(entry)

    def check(self, grant: Grant, context: RequestContext) -> None:
        """Judge a further attribute: only what this context has is looked at."""
        for caveat in grant.caveats:
            _judge_caveat(caveat, context, strict=False)

    def standing(self, token: str) -> _Entry:
        """Check what does not depend on the request: known, key, revocation, times."""
        entry = self._find(token)
        claims, now_s = entry.claims, self.now_s()
        if not self._kid_is_good(claims.kid):
            raise Unauthenticated("The key is not known.", reason="unknown_kid")
        if self.floors.hits(claims, tuple(block.rid for block in entry.blocks)):
            raise Unauthenticated("The token was revoked.", reason="revoked")
        exps, nbfs = [claims.exp], [claims.nbf]
        for caveat in _caveats(entry):
            name, _, value = caveat.partition("=")
            exps += [int(value)] if name == "exp" else []
            nbfs += [int(value)] if name == "nbf" else []
        if now_s >= min(exps):
            raise Expired("The token has expired.", reason="expired")
        if now_s + SKEW_S < max(nbfs):
            raise Expired("The token is not valid yet.", reason="not_yet_valid")
        return entry

    def unjudged(self, entry: _Entry, context: RequestContext) -> list[str]:
        """Judge what the context gives and name the caveats it says nothing about."""
        _judge_audience(entry.claims, context)
        unknown = [caveat for caveat in _caveats(entry) if not _judge_caveat(caveat, context, strict=False)]
        silent = ["aud"] if context.aud is None and "*" not in entry.claims.aud else []
        return [*silent, *(caveat.partition("=")[0] for caveat in unknown)]

    def _judge(self, entry: _Entry, context: RequestContext, waived: frozenset[str]) -> None:
        if context.aud is None:
            raise Forbidden("The request names no audience.", reason="caveat:aud")
        _judge_audience(entry.claims, context)
        for caveat in _caveats(entry):
            if caveat.partition("=")[0] not in waived:
                _judge_caveat(caveat, context, strict=True)

    def _charge(self, entry: _Entry, cost_bytes: int) -> None:
        """Count budgets per block that carries them; nothing is charged when any is used up."""
        bills: list[tuple[tuple[str, str], int]] = []
        for block in entry.blocks:
            for caveat in block.caveats:
                name, _, value = caveat.partition("=")
                if name not in _COUNTED:
                    continue
                cost = 1 if name == "budget.reqs" else cost_bytes
                if self._spent.get((block.rid, name), 0) + cost > int(value):
                    raise RateLimited("The budget is used up.", scope="capability", reason="budget")
                bills.append(((block.rid, name), cost))
        for account, cost in bills:
            self._spent[account] = self._spent.get(account, 0) + cost

    def _find(self, token: str) -> _Entry:
        if not token:
            raise Unauthenticated("No capability was given.", reason="missing")
        entry = self._entries.get(token)
        if entry is None:
            reason = "bad_signature" if token.startswith(PREFIX) else "malformed"
            raise Unauthenticated("The token is not one of ours.", reason=reason)
        return entry

    def _kid_is_good(self, kid: str) -> bool:
        until = self.kids.get(kid, 0.0)
        return until is None or until > self._clock.monotonic()


def _caveats(entry: _Entry) -> list[str]:
    return [caveat for block in entry.blocks for caveat in block.caveats]


def _grant(entry: _Entry) -> Grant:
    claims = entry.claims
    return Grant(
        sub=claims.sub,
        tenant=claims.tenant or f"sub:{claims.sub}",
        class_=claims.class_,
        tid=claims.tid,
        aud=claims.aud,
        exp=claims.exp,
        epoch=claims.epoch,
        kid=claims.kid,
        rids=tuple(block.rid for block in entry.blocks),
        caveats=tuple(_caveats(entry)),
    )


def _judge_audience(claims: Claims, context: RequestContext) -> None:
    if context.aud is not None and context.aud not in claims.aud and "*" not in claims.aud:
        raise Forbidden("The token is for another audience.", reason="caveat:aud")


def _judge_caveat(caveat: str, context: RequestContext, *, strict: bool) -> bool:
    """Raise when a caveat is not satisfied; False when the context says nothing about it (and that is allowed)."""
    name, _, values = caveat.partition("=")
    if name not in _MATCHED:
        return True
    attribute, matches = _MATCHED[name]
    value = getattr(context, attribute)
    if value is None and not strict:
        return False
    if value is None or not any(matches(value, allowed) for allowed in values.split(",")):
        raise Forbidden(f"The capability's {name} does not cover this.", reason=f"caveat:{name}")
    return True
