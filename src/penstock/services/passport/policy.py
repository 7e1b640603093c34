"""The issuer policy: a signed descriptor whose version only rises, tightened by the local settings. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from penstock.capability import ed25519
from penstock.capability.caveats import Caveat
from penstock.capability.families import FAMILIES
from penstock.capability.token import ALGORITHMS, ED25519, HYBRID, prefixed
from penstock.kernel.errors import Conflict, Integrity, Malformed

DOMAIN: Final = b"penstock.registry.v1\0"
# What a token may be signed with under each post-quantum mode, the strongest first.
OFFERED: Final = {
    "off": (ED25519,),
    "mirror": (HYBRID, ED25519),
    "require": (HYBRID, ED25519),
    "enforce": (HYBRID,),
}
_FAMILIES: Final = tuple(FAMILIES)


class Descriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a registry lets an issuer do."""

    version: int
    algs: tuple[str, ...] = ALGORITHMS
    max_ttl_s: int = 3600
    families: tuple[str, ...] = _FAMILIES
    max_budget_bytes: int = 1 << 20
    max_budget_reqs: int = 100
    max_rate_rps: int = 5


class SignedDescriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A descriptor as it travels: its exact bytes and the registry's signature over them, both base64url."""

    descriptor: str
    signature: str


def sign(descriptor: Descriptor, seed: bytes) -> bytes:
    """Write a signed descriptor; only a registry does this."""
    data = msgspec.json.encode(descriptor)
    signature = ed25519.sign(seed, DOMAIN + prefixed(data))
    return msgspec.json.encode(SignedDescriptor(_text(data), _text(signature)))


def read(data: bytes, anchor: bytes, version_seen: int) -> Descriptor:
    """Read a signed descriptor: refused when unsigned, malformed, or older than what was seen."""
    try:
        signed = msgspec.json.decode(data, type=SignedDescriptor)
        payload, signature = _bytes(signed.descriptor), _bytes(signed.signature)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise Malformed("The policy descriptor cannot be read.", reason="malformed") from exc
    if not ed25519.holds(anchor, DOMAIN + prefixed(payload), signature):
        raise Integrity("The policy descriptor is not signed by the registry.", reason="unsigned")
    try:
        descriptor = msgspec.json.decode(payload, type=Descriptor)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed("The policy descriptor cannot be read.", reason="malformed") from exc
    if descriptor.version < version_seen:
        raise Conflict("The policy descriptor is older than one seen before.", reason="rollback")
    return descriptor


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _text(data) != text:
        raise ValueError("not canonical base64url")
    return data


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the local settings allow at most, and how long a rotated key still verifies."""

    max_ttl_s: int = 3600
    grace_s: float = 600.0
    algs: tuple[str, ...] = ALGORITHMS
    pq_mode: str = "off"
    disabled: frozenset[str] = frozenset()
    max_budget_bytes: int = 1 << 20
    max_budget_reqs: int = 100
    max_rate_rps: int = 5


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IssuePolicy:
    """What may be issued now: the registry's descriptor and the local limits, whichever is narrower.

    One object each.
    """

    version: int
    limits: Limits
    families: frozenset[str]
    # The largest value of each counted caveat.
    maxima: dict[str, int]

    def check(self, caveat: Caveat) -> None:
        """Refuse a caveat of a family that is not allowed, or above its maximum."""
        if caveat.name not in self.families:
            raise Malformed(f"The caveat {caveat.name!r} is not allowed by the policy.", reason="unknown_caveat")
        if caveat.name in self.maxima and caveat.number > self.maxima[caveat.name]:
            most = self.maxima[caveat.name]
            raise Malformed(f"The caveat {caveat.name} is at most {most}.", reason="policy_violation")


def in_force(descriptor: Descriptor, limits: Limits) -> IssuePolicy:
    """Tighten a descriptor by the local limits; neither can widen the other."""
    narrowed = replace(
        limits,
        max_ttl_s=min(limits.max_ttl_s, descriptor.max_ttl_s),
        algs=tuple(alg for alg in limits.algs if alg in descriptor.algs),
        max_budget_bytes=min(limits.max_budget_bytes, descriptor.max_budget_bytes),
        max_budget_reqs=min(limits.max_budget_reqs, descriptor.max_budget_reqs),
        max_rate_rps=min(limits.max_rate_rps, descriptor.max_rate_rps),
    )
    families = frozenset(descriptor.families) & FAMILIES.keys() - limits.disabled
    maxima = {
        "budget.bytes": narrowed.max_budget_bytes,
        "budget.reqs": narrowed.max_budget_reqs,
        "rate.rps": narrowed.max_rate_rps,
    }
    return IssuePolicy(version=descriptor.version, limits=narrowed, families=families, maxima=maxima)
