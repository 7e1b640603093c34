"""What a verifier believes: public keys and floors, one state swapped whole, and until when the feed vouches for it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from penstock.capability import ed25519, hybrid
from penstock.capability.floors import Floors
from penstock.capability.token import ED25519, HYBRID
from penstock.contracts.passport import Jwk, KeySet
from penstock.kernel.errors import Malformed

USE: Final = "sig"
LEASE_S: Final = 5.0
STALE_GRACE_S: Final = 30.0
FOREVER_S: Final = float("inf")


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A public key by its kid. The algorithm a token is verified by comes from here, never from the token."""

    kid: str
    alg: str
    public: bytes
    ml_public: bytes
    nbf: int
    exp: int

    @property
    def identity(self) -> tuple[str, str, bytes, bytes]:
        """Return what makes it this key: not its times, which a rotation changes."""
        return (self.kid, self.alg, self.public, self.ml_public)

    def holds(self, message: bytes, signature: bytes) -> bool:
        """Tell whether a signature of this key holds."""
        if self.alg == HYBRID:
            return hybrid.holds(self.public, self.ml_public, message, signature)
        return ed25519.holds(self.public, message, signature)

    def jwk(self) -> Jwk:
        """Write it as a JWK; the halves of a hybrid key are one value and never published alone."""
        if self.alg == HYBRID:
            both = _text(self.public + self.ml_public)
            return Jwk("AKP", self.kid, HYBRID, self.nbf, self.exp, pub=both, use=USE)
        return Jwk("OKP", self.kid, ED25519, self.nbf, self.exp, crv="Ed25519", x=_text(self.public), use=USE)


def record_of(key: Jwk) -> KeyRecord:
    """Read a JWK; a key that is weak, misspelt or of an unknown kind is refused here."""
    if key.kty == "OKP" and key.alg == ED25519 and key.crv == "Ed25519":
        return KeyRecord(key.kid, ED25519, ed25519.read_public(_bytes(key.x)), b"", key.nbf, key.exp)
    if key.kty == "AKP" and key.alg == HYBRID:
        both = _bytes(key.pub)
        public, ml_public = both[: ed25519.PUBLIC_BYTES], both[ed25519.PUBLIC_BYTES :]
        return KeyRecord(key.kid, HYBRID, ed25519.read_public(public), hybrid.read_public(ml_public), key.nbf, key.exp)
    raise Malformed("This is no key for tokens.", reason="bad_key")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as exc:
        raise Malformed("A key is not base64url.", reason="bad_key") from exc
    if _text(data) != text:
        raise Malformed("A key is not canonical base64url.", reason="bad_key")
    return data


Ring = MappingProxyType[str, KeyRecord]


def ring_of(keys: KeySet) -> Ring:
    """Read a key set."""
    return MappingProxyType({key.kid: record_of(key) for key in keys.keys})


@dataclass(slots=True)
class Trust:
    """The state one verifier reads. One writer: the passport service itself, or a follower of its feed."""

    keys: Ring = field(default_factory=lambda: MappingProxyType({}))
    floors: Floors = field(default_factory=Floors)
    # Monotonic: until when "not revoked" may be believed. The issuer itself needs no lease.
    lease_until: float = FOREVER_S
    # Rises with every change: whoever remembers a judgement remembers which state it was made on.
    version: int = 0

    def swap(self, keys: Ring | None = None, floors: Floors | None = None) -> None:
        """Replace keys, floors or both in one step."""
        self.keys = self.keys if keys is None else keys
        self.floors = self.floors if floors is None else floors
        self.version += 1

    @property
    def known(self) -> bool:
        """Tell whether there is anything to verify with."""
        return bool(self.keys)
