"""An issuer with known keys, a clock to move, and the one verifier."""

from __future__ import annotations

from types import MappingProxyType

from penstock.capability import ed25519, hybrid
from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate, mint
from penstock.capability.token import (
    ED25519,
    HYBRID,
    IssuingLevel,
    Token,
    TokenRoot,
    decode,
    encode,
)
from penstock.capability.trust import KeyRecord, Trust
from penstock.capability.verifier import CapabilityVerifier, VerifierOptions
from penstock.contracts.capability import Grant, RequestContext
from penstock.contracts.passport import Revocation
from penstock.kernel.errors import PenstockError
from penstock.testing.fakes import VirtualClock

NOW = 1_800_000_000
ISSUER_SEED = bytes(range(32))
ML_SEED = bytes(range(32, 64))
SEND = RequestContext(aud="svc-mailbox", op="send", topic="orders/eu", method="POST", route="/v1/send", ip="10.1.2.3")


def seed(number: int) -> bytes:
    """Return the seed of an ephemeral key, known beforehand."""
    return bytes([number]) * 32


class Issuer:
    """Signs whatever it is asked to: the tests decide what is right."""

    def __init__(
        self, options: VerifierOptions | None = None, *, alg: str = ED25519, pool=None, seed: bytes = ISSUER_SEED
    ) -> None:
        self.clock = VirtualClock(wall_s=float(NOW))
        self.alg = alg
        self.public, self.secret = ed25519.expand(seed)
        self.ml = hybrid.private_key(ML_SEED) if alg == HYBRID else None
        self.trust = Trust(keys=MappingProxyType({"k1": self.record()}))
        self.verifier = CapabilityVerifier(self.trust, self.clock, options, pool=pool)
        self._tids = 0

    def record(self, kid: str = "k1", exp: int = NOW + 10**6) -> KeyRecord:
        ml_public = b"" if self.ml is None else self.ml.public_key().public_bytes_raw()
        return KeyRecord(kid, self.alg, self.public, ml_public, NOW, exp)

    def sign(self, message: bytes) -> bytes:
        classical = ed25519.sign_with(self.secret, message)
        return classical if self.ml is None else classical + self.ml.sign(message, hybrid.CONTEXT)

    def root(self, *caveats: str, **fields) -> TokenRoot:
        self._tids += 1
        given = {
            "alg": self.alg,
            "kid": "k1",
            "epoch": 0,
            "iss": "penstock",
            "aud": ("svc-mailbox",),
            "sub": "alice",
            "tenant": "acme",
            "class_": "authed",
            "via": (),
            "iat": NOW,
            "nbf": NOW,
            "exp": NOW + 900,
            "tid": self._tids.to_bytes(16, "big"),
            "caveats": parse_all(caveats),
            "epk": b"",
        }
        root = {**given, **fields}
        # A lineage of bare ids, as older tokens have it, may be written as plain tuples.
        root["via"] = tuple(IssuingLevel(level) if isinstance(level, tuple) else level for level in root["via"])
        return TokenRoot(**root)

    def token(self, *caveats: str, **fields) -> str:
        return mint(self.root(*caveats, **fields), self.sign, seed(100))

    def revoke(self, kind: str, value: str, floor: int) -> None:
        floors = self.trust.floors
        entry = Revocation(floors.seq + 1, kind, value, floor, NOW * 1000)
        self.trust.swap(floors=floors.with_entry(entry))

    def verdict(self, token: str, context: RequestContext = SEND) -> str:
        """Return `ok`, or the code and reason of the refusal."""
        try:
            granted = self.verifier.verify(token, context)
        except PenstockError as error:
            return f"{error.code}:{error.facts.get('reason')}"
        assert isinstance(granted, Grant)
        return "ok"


def narrowed(token: str, *blocks: tuple[str, ...]) -> str:
    """Add blocks, each with its own caveats and a seed known beforehand."""
    for number, caveats in enumerate(blocks, len(decode(token).blocks) + 1):
        token = attenuate(token, parse_all(caveats), seed(number))
    return token


def rebuilt(token: Token, **fields) -> str:
    """Write a token with some of its parts exchanged."""
    parts = {name: getattr(token, name) for name in token.__struct_fields__}
    return encode(Token(**{**parts, **fields}))
