"""Caveats against a request: made ready once for a token, run at every request. Bounded by count, never by time."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.capability.caveats import Caveat, Network, network, parse
from penstock.capability.families import GATEWAY, ROUTE_AUDIENCE, SCOPES, CaveatKind
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden

SEPARATORS: Final = ("/", ":", ".")
SKEW_S: Final = 60
_SCOPE_HINT: Final = (
    "Ask its issuer for a caveat that is scoped to the service it is about, as svc-mailbox:topic=orders/."
)


class AttributeCheck(NamedTuple):
    """One question to a request: whether this attribute has a value that is allowed."""

    name: str
    attribute: str
    allows: Callable[[str], bool]
    # What it allows, as it is written.
    written: str = ""


def is_under(value: str, prefix: str) -> bool:
    """Match a prefix on a boundary.

    Itself, what follows a separator, everything below a final one, or any after `*`.
    """
    if prefix.endswith("*"):
        return value.startswith(prefix[:-1])
    if prefix.endswith(SEPARATORS):
        return value.startswith(prefix)
    return value == prefix or (value.startswith(prefix) and value[len(prefix)] in SEPARATORS)


@lru_cache(maxsize=4096)
def _address(text: str) -> tuple[int, int]:
    """Read an address as version and number; an IPv4 one inside IPv6 is the IPv4 one, and no address has version 0."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return 0, 0
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    found = mapped or found
    return found.version, int(found)


def _in_any(networks: list[Network]) -> Callable[[str], bool]:
    masks = [(each.version, int(each.netmask), int(each.network_address)) for each in networks]

    def allows(value: str) -> bool:
        version, number = _address(value)
        return any(version == v and number & mask == start for v, mask, start in masks)

    return allows


def _under_any(prefixes: tuple[str, ...]) -> Callable[[str], bool]:
    """Do as `is_under` does for any of these, in two steps of the interpreter: the very words, or a beginning."""
    words = frozenset(prefixes)
    starts = tuple(start for prefix in prefixes for start in _starts(prefix))
    return lambda value: value.startswith(starts) or value in words


def _starts(prefix: str) -> tuple[str, ...]:
    if prefix.endswith("*"):
        return (prefix[:-1],)
    return (prefix,) if prefix.endswith(SEPARATORS) else tuple(prefix + separator for separator in SEPARATORS)


def _nothing(_value: str) -> bool:
    return False


def _anything(_value: str) -> bool:
    return True


def _matcher(caveat: Caveat) -> Callable[[str], bool]:
    words = caveat.words
    if caveat.is_star:
        return _anything
    if caveat.family.kind is CaveatKind.PREFIX:
        return _under_any(words)
    if caveat.family.kind is CaveatKind.NETWORK:
        return _in_any([network(word) for word in words])
    if caveat.family.attribute == "aud":
        return meant_for(words)
    return frozenset(words).__contains__


def meant_for(audiences: tuple[str, ...]) -> Callable[[str], bool]:
    """Match an audience. A route of the gateway is part of the gateway; the gateway is no part of a route."""
    named = frozenset(audiences)
    if GATEWAY not in named:
        return named.__contains__
    return lambda audience: audience in named or audience.startswith(ROUTE_AUDIENCE)


@lru_cache(maxsize=2048)
def _check_of(caveat: Caveat) -> AttributeCheck:
    return AttributeCheck(caveat.name, caveat.family.attribute, _matcher(caveat), str(caveat))


def make_ready(caveats: Iterable[Caveat], scope: str = "") -> tuple[AttributeCheck, ...]:
    """Turn the caveats that ask something of a request into checks: those of no scope, or those of one."""
    return tuple(_check_of(caveat) for caveat in caveats if caveat.family.attribute and caveat.scope == scope)


class ScopedChecks:
    """The caveats of a token that count at one service each.

    A block that lists ops for some services only, and none for all, does not mean the others: it shuts them. That is
    judged block by block, because a later block may not open again what an earlier one has shut.
    """

    __slots__ = ("_by_service", "_listed", "shut")

    def __init__(self, blocks: Iterable[tuple[Caveat, ...]]) -> None:
        """Sort them by their service."""
        parts = tuple(blocks)
        caveats = tuple(caveat for part in parts for caveat in part)
        scopes = dict.fromkeys(caveat.scope for caveat in caveats if caveat.scope)
        self._by_service = {scope: make_ready(caveats, scope) for scope in scopes}
        self._listed = ", ".join(str(caveat) for caveat in caveats if caveat.name == "op")
        self.shut = frozenset(name for name in SCOPES if any(_shuts(part, name) for part in parts)) if scopes else _NONE

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._by_service)

    def at(self, service: str | None) -> tuple[AttributeCheck, ...]:
        """Return the checks of one service."""
        if service is not None and service.startswith(ROUTE_AUDIENCE):
            service = GATEWAY
        checks = self._by_service.get(service or "", ())
        return (*checks, AttributeCheck("op", "op", _nothing, self._listed)) if service in self.shut else checks


_NONE: Final[frozenset[str]] = frozenset()


def _shuts(block: tuple[Caveat, ...], service: str) -> bool:
    ops = [caveat for caveat in block if caveat.name == "op"]
    return bool(ops) and not any(caveat.counts_at(service) for caveat in ops)


@lru_cache(maxsize=4096)
def make_ready_texts(caveats: tuple[str, ...], service: str | None) -> tuple[AttributeCheck, ...]:
    """Do the same for a grant's written caveats at one service; grants repeat, so the work is kept."""
    read = tuple(map(parse, caveats))
    return (*make_ready(read), *ScopedChecks((read,)).at(service))


def judge(checks: Iterable[AttributeCheck], context: RequestContext) -> None:
    """Refuse a request that any check does not allow; an attribute it does not have satisfies none."""
    for name, attribute, allows, written in checks:
        value = getattr(context, attribute)
        if value is None or not allows(value):
            raise not_covered(name, value, written)


def judge_given(checks: tuple[AttributeCheck, ...], context: RequestContext) -> list[str]:
    """Judge only the attributes the context has; name the caveats it says nothing about."""
    unjudged = []
    for name, attribute, allows, written in checks:
        value = getattr(context, attribute)
        if value is None:
            unjudged.append(name)
        elif not allows(value):
            raise not_covered(name, value, written)
    return unjudged


def not_covered(name: str, value: str | None = None, written: str = "") -> Forbidden:
    """Make the refusal of a caveat: what was needed, and what the token has."""
    reason = f"caveat:{name}"
    if not written:
        return Forbidden(f"The capability's {name} does not cover this.", reason=reason)
    if value is None:
        said = f"The token is good only with {written}, and a request of this kind has no {name}."
        return Forbidden(said, reason=reason, has=written, hint=_SCOPE_HINT)
    needed = f"{name}={value}"
    said = f"This needs {needed}; the token allows {written}."
    return Forbidden(said, reason=reason, needed=needed, has=written, hint=f"Ask its issuer for one with {needed}.")
