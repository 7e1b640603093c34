"""Keys of our own: sealed at rest with a secret, or in RAM alone; Ed25519 by libsodium, ML-DSA-65 beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from penstock.capability import ed25519, hybrid
from penstock.capability.token import ED25519, HYBRID
from penstock.capability.trust import KeyRecord
from penstock.services.passport.kms import FOREVER_S, KmsFailed, kid_of
from penstock.services.passport.store import write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import mldsa

# The signing key of each algorithm and the one before it: what was begun before a rotation can still be signed.
GENERATIONS: Final = 2


class SealedKey(msgspec.Struct, frozen=True):
    """A private key as it lies in the sealed file."""

    alg: str
    seed: bytes
    ml_seed: bytes
    made_at: int

    def __repr__(self) -> str:
        """Show nothing that signs."""
        return f"SealedKey({self.alg}, {self.made_at})"


@dataclass(frozen=True, slots=True)
class _Private:
    kept: SealedKey
    record: KeyRecord
    secret: bytes = field(repr=False)
    ml: mldsa.MLDSA65PrivateKey | None = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        classical = ed25519.sign_with(self.secret, message)
        return classical if self.ml is None else classical + self.ml.sign(message, hybrid.CONTEXT)


def _load(kept: SealedKey) -> _Private:
    public, secret = ed25519.expand(kept.seed)
    ml = hybrid.private_key(kept.ml_seed) if kept.alg == HYBRID else None
    ml_public = b"" if ml is None else ml.public_key().public_bytes_raw()
    kid = kid_of(public + ml_public)
    record = KeyRecord(kid, kept.alg, public, ml_public, kept.made_at, kept.made_at + FOREVER_S)
    return _Private(kept, record, secret, ml)


class Seal:
    """A file that is only readable with a secret."""

    def __init__(self, path: Path, secret: bytes) -> None:
        """Derive the sealing key; the secret itself is not kept."""
        self._path = path
        self._box = SecretBox(blake3(secret, derive_key_context="penstock.kms.seal").digest())

    def read(self) -> list[SealedKey]:
        """Open the file; none is an empty list, one that does not open stops the start."""
        try:
            sealed = self._path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            return msgspec.msgpack.decode(self._box.decrypt(sealed), type=list[SealedKey])
        except (CryptoError, msgspec.MsgspecError) as exc:
            raise KmsFailed("the sealed keys do not open with this secret") from exc

    def write(self, keys: list[SealedKey]) -> None:
        """Seal the keys and replace the file."""
        write_private(self._path, bytes(self._box.encrypt(msgspec.msgpack.encode(keys))))


def sealing_secret(folder: Path) -> bytes:
    """Return the data directory's own secret, making it (0600) at the first start."""
    path = folder / "sealing.key"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        secret = os.urandom(32)
        write_private(path, secret)
        return secret


class LocalKms:
    """The embedded engine. Without a seal the keys live and die with the process."""

    def __init__(self, seal: Seal | None = None) -> None:
        self._seal = seal
        # Newest first. Replaced whole, so that a signer on another thread never sees half of a rotation.
        self._keys: tuple[_Private, ...] = ()
        # Signing is a matter of microseconds as long as no ML-DSA key signs.
        self.inline = True

    def open(self, algs: tuple[str, ...], now_s: int) -> None:
        """Unseal the keys, and make what is missing."""
        if self._seal is not None:
            self._hold(map(_load, self._seal.read()))
        missing = tuple(alg for alg in algs if alg not in {key.kept.alg for key in self._keys})
        if missing:
            self.rotate(missing, now_s)

    def sign(self, kid: str, message: bytes) -> bytes:
        """Sign with exactly this key."""
        for key in self._keys:
            if key.record.kid == kid:
                return key.sign(message)
        raise KmsFailed("there is no such key")

    def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        """Make a new key of each algorithm, keep one generation before it, and seal before anyone may use it."""
        fresh = [_load(SealedKey(alg, os.urandom(32), os.urandom(32), now_s)) for alg in algs]
        kept = [key for alg in (ED25519, HYBRID) for key in self._generations(alg, fresh)]
        if self._seal is not None:
            self._seal.write([key.kept for key in kept])
        self._hold(kept)

    def _hold(self, keys: Iterable[_Private]) -> None:
        held = tuple(keys)
        self.inline = all(key.ml is None for key in held)
        self._keys = held

    def _generations(self, alg: str, fresh: list[_Private]) -> list[_Private]:
        return [key for key in (*fresh, *self._keys) if key.kept.alg == alg][:GENERATIONS]

    def public_keys(self) -> tuple[KeyRecord, ...]:
        """Return the public keys, the newest of each algorithm first."""
        return tuple(key.record for key in self._keys)

    def close(self) -> None:
        """Forget the keys."""
        self._hold(())
