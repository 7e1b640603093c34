"""May this token hand out that one? One pure function, with a law.

Every request the new token allows, the old one allows.

What the issuing token restricts, the new one must restrict at least as much, family by family; what it does not repeat,
it does not cover. Caveats may be scoped to a service, so both are projected on each service that the new token can
reach, and must hold for each: by the name of a family alone, what is said about one service would count for another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from penstock.capability.caveats import Caveat, Network, network
from penstock.capability.families import (
    BUDGETS,
    CLASSES,
    GATEWAY,
    GRANTED_OPS,
    SCOPES,
    CaveatKind,
)
from penstock.capability.judging import SEPARATORS, ScopedChecks, is_under
from penstock.contracts.capability import TrafficClass

_STAR: Final = "*"


class HeldAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """What the issuing token has: its audience and every caveat of every block."""

    aud: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    tenant: str | None
    class_: TrafficClass
    exp: int
    operator: bool
    # Services at which one of its blocks allows nothing.
    shut: frozenset[str] = frozenset()


class RequestedAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """What the new token shall have."""

    aud: tuple[str, ...]
    caveats: tuple[Caveat, ...]
    tenant: str | None
    class_: TrafficClass
    nbf: int
    exp: int


def uncovered(held: HeldAuthority, asked: RequestedAuthority) -> str | None:
    """Name the first thing that is asked and not covered; None when all of it is."""
    if any(caveat.name in BUDGETS for caveat in held.caveats):
        return "budget"
    if not _words_within(asked.aud, held.aud):
        return "aud"
    if not any(caveat.scope for caveat in (*held.caveats, *asked.caveats)):
        return _uncovered_at(held, asked)
    for service in _reached(asked.aud):
        if service in ScopedChecks((asked.caveats,)).shut:
            # The new token opens nothing there.
            continue
        missing = "op" if service in held.shut else _uncovered_at(_at(held, service), _at(asked, service))
        if missing is not None:
            return missing
    return None


def _reached(audience: tuple[str, ...]) -> tuple[str, ...]:
    """Name the services that a token for this audience can reach: by the gateway, all of them."""
    return SCOPES if _STAR in audience or GATEWAY in audience else audience


T = TypeVar("T", HeldAuthority, RequestedAuthority)


def _at(authority: T, service: str) -> T:
    """Project an authority on one service: what is not scoped, and what is scoped to it."""
    counted = tuple(replace(each, scope="") for each in authority.caveats if each.counts_at(service))
    return msgspec.structs.replace(authority, caveats=counted)


def _uncovered_at(held: HeldAuthority, asked: RequestedAuthority) -> str | None:
    """Name what is not covered at one service."""
    if not held.operator:
        refused = _beyond_the_issuer(held, asked)
        if refused is not None:
            return refused
    for caveat in held.caveats:
        if caveat.name != "op" and not _repeated(caveat, asked):
            return caveat.name
    return None


def _beyond_the_issuer(held: HeldAuthority, asked: RequestedAuthority) -> str | None:
    """Name what only the operator hands out: another tenant, a higher class, a longer life, the power to issue."""
    if held.tenant is None or asked.tenant != held.tenant:
        return "tenant"
    if CLASSES.index(asked.class_) > CLASSES.index(held.class_):
        return "class"
    if asked.exp > held.exp:
        return "exp"
    return None if _ops_within(asked.caveats, held.caveats) else "op"


def _ops_within(asked: Iterable[Caveat], held: Iterable[Caveat]) -> bool:
    """Tell whether ops were asked for, all of them among the issuer's, and none of those that make issuers."""
    wanted = [frozenset(caveat.words) for caveat in asked if caveat.name == "op"]
    if not wanted:
        return False
    # A star in one list leaves what the others say; in all of them, everything.
    listed = [words for words in wanted if _STAR not in words]
    if not listed:
        return False
    ops = frozenset.intersection(*listed)
    allowed = all(caveat.is_star or ops <= frozenset(caveat.words) for caveat in held if caveat.name == "op")
    return allowed and ops.isdisjoint(GRANTED_OPS)


def _repeated(held: Caveat, asked: RequestedAuthority) -> bool:
    """Tell whether what is asked restricts this family at least as much."""
    name = held.name
    if name == "aud" and _words_within(asked.aud, held.words):
        return True
    if name == "exp" and asked.exp <= held.number:
        return True
    if name == "nbf" and asked.nbf >= held.number:
        return True
    return any(_narrower(caveat, held) for caveat in asked.caveats if caveat.name == name)


def _narrower(asked: Caveat, held: Caveat) -> bool:
    kind = held.family.kind
    if kind is CaveatKind.SET:
        return held.is_star or _words_within(asked.words, held.words)
    if kind is CaveatKind.PREFIX:
        return all(any(prefix_within(one, other) for other in held.words) for one in asked.words)
    if kind is CaveatKind.NETWORK:
        return all(any(_subnet(network(one), network(other)) for other in held.words) for one in asked.words)
    if kind is CaveatKind.AT_MOST:
        return asked.number <= held.number
    return asked.number >= held.number if kind is CaveatKind.AT_LEAST else asked.values == held.values


def _words_within(asked: tuple[str, ...], held: tuple[str, ...]) -> bool:
    return _STAR in held or set(asked) <= set(held)


def prefix_within(asked: str, held: str) -> bool:
    """Tell whether everything the one prefix matches, the other matches too."""
    if held.endswith(_STAR):
        return asked.removesuffix(_STAR).startswith(held[:-1])
    if asked.endswith(_STAR):
        # Any continuation: also one that leaves a boundary, unless the other is passed already.
        return is_under(asked[:-1], held) and (held.endswith(SEPARATORS) or len(asked) - 1 > len(held))
    return is_under(asked, held)


def _subnet(asked: Network, held: Network) -> bool:
    return asked.version == held.version and asked.subnet_of(held)  # type: ignore[arg-type]  # of one version
