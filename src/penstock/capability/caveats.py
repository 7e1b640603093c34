"""One caveat as a value: read from its written form or from a token, and written back the same way."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.capability.families import (
    BY_CODE,
    FAMILIES,
    ROUTE_AUDIENCE,
    SCOPED,
    SCOPED_CODE,
    SCOPES,
    STARRED,
    CaveatFamily,
    CaveatKind,
)
from penstock.kernel.errors import Malformed
from penstock.wire.cbor import Value
from penstock.wire.plain_words import near_word

CAVEATS_MAX: Final = 64
VALUES_MAX: Final = 32
# All caveats of a token together: what a stranger can have decoded for nothing is bounded by this.
VALUES_TOTAL_MAX: Final = 512
VALUE_CHARS_MAX: Final = 256
NUMBER_MAX: Final = (1 << 53) - 1
_NUMBERS: Final = (CaveatKind.AT_MOST, CaveatKind.AT_LEAST)
_FLAGS: Final = {"false": 0, "true": 1}

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Caveat:
    """A restriction; several values mean any of them. Texts for the textual kinds, one number for the others."""

    family: CaveatFamily
    values: tuple[str | int, ...]
    # The service it counts at; empty: at every one.
    scope: str = ""

    @property
    def name(self) -> str:
        """Name its family."""
        return self.family.name

    @property
    def number(self) -> int:
        """Return the value of a counted, timed or flag caveat."""
        (value,) = self.values
        assert isinstance(value, int)
        return value

    @property
    def words(self) -> tuple[str, ...]:
        """Return the values of a textual caveat."""
        return tuple(str(value) for value in self.values)

    @property
    def is_star(self) -> bool:
        """Tell whether it allows every word."""
        return self.name in STARRED and "*" in self.values

    def wire(self) -> tuple[str | int, ...]:
        """Return what the token holds: the family's number, then the values; first of all the service of its scope."""
        own = (self.family.code, *self.values)
        return (SCOPED_CODE, self.scope, *own) if self.scope else own

    def counts_at(self, service: str | None) -> bool:
        """Tell whether it restricts what is done at this service."""
        return not self.scope or self.scope == service

    def __str__(self) -> str:
        """Write it as people do: `op=recv,ack`."""
        return _written(self)


@lru_cache(maxsize=2048)
def _written(caveat: Caveat) -> str:
    if caveat.family.kind is CaveatKind.FLAG:
        return f"{caveat.name}={'true' if caveat.number else 'false'}"
    scope = f"{caveat.scope}:" if caveat.scope else ""
    return f"{scope}{caveat.name}={','.join(map(str, caveat.values))}"


@lru_cache(maxsize=2048)
def parse(text: str) -> Caveat:
    """Read the written form; what this build cannot judge is refused, at issue as at verify."""
    name, equals, value = text.partition("=")
    if ":" in name:
        scope, _, own = text.partition(":")
        return _scoped(scope, parse(own))
    family = FAMILIES.get(name)
    if family is None or family.kind is CaveatKind.OPAQUE:
        raise _unknown(name)
    if not equals or not value:
        raise _bad(name, "needs a value")
    if family.kind in _NUMBERS:
        if not (value.isascii() and value.isdecimal()) or str(int(value[:20])) != value:
            raise _bad(name, "takes one whole number")
        return _checked(family, (int(value),))
    if family.kind is CaveatKind.FLAG:
        if value not in _FLAGS:
            raise _bad(name, "takes true or false")
        return _checked(family, (_FLAGS[value],))
    return _checked(family, tuple(value.split(",")))


def parse_all(texts: Iterable[str]) -> tuple[Caveat, ...]:
    """Read many, within their bound."""
    caveats = tuple(map(parse, texts))
    if len(caveats) > CAVEATS_MAX or count_values(caveats) > VALUES_TOTAL_MAX:
        raise Malformed(
            f"A token has at most {CAVEATS_MAX} caveats, with {VALUES_TOTAL_MAX} values together.",
            reason="too_many_caveats",
        )
    return caveats


def _scoped(scope: str, caveat: Caveat) -> Caveat:
    """Bind a caveat to one service; only what is judged on a request of that service can be."""
    if scope not in SCOPES:
        raise _bad(f"{scope[:40]}:{caveat.name}", f"is scoped to no service; there are {', '.join(SCOPES)}")
    if caveat.name not in SCOPED or caveat.scope:
        raise _bad(f"{scope}:{caveat.name}", f"cannot be scoped; {', '.join(sorted(SCOPED))} can")
    return replace(caveat, scope=scope)


def check_scopes(audience: tuple[str, ...], caveats: Iterable[Caveat]) -> None:
    """Refuse a scoped caveat in a token for everybody: what it does not name would be open, whatever comes to be."""
    if "*" in audience and any(caveat.scope for caveat in caveats):
        raise Malformed(
            "A token with a scoped caveat names its audiences; it cannot be for *.",
            reason="bad_caveat",
            hint="Name the services: penstock token issue --audience svc-mailbox --audience svc-storage.",
        )


def count_values(caveats: Iterable[Caveat]) -> int:
    """Count the values of all these caveats."""
    return sum(len(caveat.values) for caveat in caveats)


def from_wire(value: Value) -> Caveat:
    """Read what a token holds."""
    if not isinstance(value, list) or not value or not isinstance(value[0], int):
        raise Malformed("A caveat is not an array that begins with its number.", reason="bad_caveat")
    if value[0] == SCOPED_CODE:
        if len(value) < 3 or not isinstance(value[1], str) or value[2] == SCOPED_CODE:
            raise Malformed("A scoped caveat names its service and one family.", reason="bad_caveat")
        return _scoped(value[1], from_wire(value[2:]))
    family = BY_CODE.get(value[0])
    if family is None or family.kind is CaveatKind.OPAQUE:
        raise _unknown(str(value[0]))
    values = tuple(item for item in value[1:] if isinstance(item, str | int))
    if len(values) != len(value) - 1:
        raise _bad(family.name, "has a value of the wrong type")
    return _checked(family, values)


# The same few caveats come over and over; a refusal is never kept.
@lru_cache(maxsize=2048)
def _checked(family: CaveatFamily, values: tuple[str | int, ...]) -> Caveat:
    if family.kind in _NUMBERS or family.kind is CaveatKind.FLAG:
        high = 1 if family.kind is CaveatKind.FLAG else NUMBER_MAX
        if len(values) != 1 or not isinstance(values[0], int) or not 0 <= values[0] <= high:
            raise _bad(family.name, f"takes one whole number up to {high}")
        return Caveat(family, values)
    if not 1 <= len(values) <= VALUES_MAX or len(set(values)) != len(values):
        raise _bad(family.name, f"takes 1 to {VALUES_MAX} different values")
    for value in values:
        _check_word(family, value)
    return Caveat(family, values)


def _check_word(family: CaveatFamily, word: str | int) -> None:
    # A comma would part the written form elsewhere; a control character could hide in a log line.
    if not isinstance(word, str) or not 1 <= len(word) <= VALUE_CHARS_MAX or "," in word or not word.isprintable():
        raise _bad(family.name, f"takes printable values of 1 to {VALUE_CHARS_MAX} characters without commas")
    if family.words and word not in family.words and not (family.name == "aud" and _is_route(word)):
        raise _bad(family.name, f"knows only {', '.join(family.words)}")
    if family.kind is CaveatKind.NETWORK:
        network(word)
    if family.name == "method" and not (word.isascii() and word.isalpha() and word.isupper()):
        raise _bad(family.name, "takes upper-case methods")
    if family.name == "route" and not word.startswith(("/", "*")):
        raise _bad(family.name, "takes paths that begin with /")


def _is_route(word: str) -> bool:
    """Tell whether an audience is a configured route of the gateway."""
    return word.startswith(ROUTE_AUDIENCE + "/")


@lru_cache(maxsize=4096)
def network(text: str) -> Network:
    """Read a network in its one canonical spelling; a single address stands for itself."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError as exc:
        raise _bad("ip", "takes networks such as 10.0.0.0/8") from exc
    if text not in (str(found), str(found.network_address) if found.num_addresses == 1 else ""):
        raise _bad("ip", f"is written {found}")
    return found


def _unknown(name: str) -> Malformed:
    shown, known = name[:40], [each for each, family in FAMILIES.items() if family.kind is not CaveatKind.OPAQUE]
    near = near_word(shown, known)
    hint = f"Did you mean {near}?" if near else f"There are {', '.join(known)}."
    return Malformed(f"The caveat {shown!r} is unknown.", reason="unknown_caveat", hint=hint)


def _bad(name: str, why: str) -> Malformed:
    return Malformed(f"The caveat {name} {why}.", reason="bad_caveat")
