"""ML-DSA-65 beside Ed25519: both must hold over the same bytes.

The library is loaded only where a hybrid key is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.capability import ed25519
from penstock.kernel.errors import Malformed, Unsupported

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import mldsa

ML_PUBLIC_BYTES: Final = 1952
ML_SIGNATURE_BYTES: Final = 3309
SIGNATURE_BYTES: Final = ed25519.SIGNATURE_BYTES + ML_SIGNATURE_BYTES
CONTEXT: Final = b"penstock.psp1.root"


def available() -> bool:
    """Tell whether this build can do it."""
    try:
        from cryptography.hazmat.primitives.asymmetric import mldsa  # noqa: PLC0415 - optional, and slow to load
    except ImportError:
        return False
    return hasattr(mldsa, "MLDSA65PrivateKey")


def private_key(seed: bytes) -> mldsa.MLDSA65PrivateKey:
    """Make the ML-DSA half of a hybrid key; without the library the mode fails closed."""
    if not available():
        raise Unsupported("This build has no ML-DSA-65.", status=501, reason="no_ml_dsa")
    from cryptography.hazmat.primitives.asymmetric import mldsa  # noqa: PLC0415 - optional, and slow to load

    return mldsa.MLDSA65PrivateKey.from_seed_bytes(seed)


def read_public(data: bytes) -> bytes:
    """Take an ML-DSA-65 public key."""
    if len(data) != ML_PUBLIC_BYTES:
        raise Malformed("This is not an ML-DSA-65 public key.", reason="bad_key")
    return data


def holds(public: bytes, ml_public: bytes, message: bytes, signature: bytes) -> bool:
    """Tell whether both halves hold."""
    if len(signature) != SIGNATURE_BYTES or not available():
        return False
    classical, post_quantum = signature[: ed25519.SIGNATURE_BYTES], signature[ed25519.SIGNATURE_BYTES :]
    return ed25519.holds(public, message, classical) and _ml_holds(ml_public, message, post_quantum)


def _ml_holds(ml_public: bytes, message: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - optional, and slow to load
    from cryptography.hazmat.primitives.asymmetric import mldsa  # noqa: PLC0415 - optional, and slow to load

    try:
        mldsa.MLDSA65PublicKey.from_public_bytes(ml_public).verify(signature, message, CONTEXT)
    except InvalidSignature:
        return False
    return True
