"""Ed25519 by libsodium's rules, everywhere: one library verifies, so no two services can disagree about a signature."""

from __future__ import annotations

from typing import Final

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from penstock.kernel.errors import Malformed

SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_PRIME: Final = (1 << 255) - 19
_SIGN_BIT: Final = 1 << 255

# The eight points of small order, and the two spellings of x = 0 with the sign bit set. A key that is one of them
# accepts one signature for every message.
SMALL_ORDER: Final = frozenset(
    bytes.fromhex(text)
    for text in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    )
)


def read_public(data: bytes) -> bytes:
    """Take a public key only if it is canonical and not of small order: checked where a key is read, not used."""
    if len(data) != PUBLIC_BYTES or data in SMALL_ORDER:
        raise Malformed("This is not an Ed25519 public key.", reason="bad_key")
    if int.from_bytes(data, "little") & ~_SIGN_BIT >= _PRIME:
        raise Malformed("This Ed25519 public key is not canonical.", reason="bad_key")
    return data


def public_of(seed: bytes) -> bytes:
    """Return the public key of a seed."""
    return crypto_sign_seed_keypair(seed)[0]


def sign(seed: bytes, message: bytes) -> bytes:
    """Sign with a seed."""
    _, secret = crypto_sign_seed_keypair(seed)
    return crypto_sign(message, secret)[:SIGNATURE_BYTES]


def sign_with(secret: bytes, message: bytes) -> bytes:
    """Sign with an expanded secret (seed and public key), which saves deriving it each time."""
    return crypto_sign(message, secret)[:SIGNATURE_BYTES]


def expand(seed: bytes) -> tuple[bytes, bytes]:
    """Return the public key and the expanded secret of a seed."""
    return crypto_sign_seed_keypair(seed)


def holds(public: bytes, message: bytes, signature: bytes) -> bool:
    """Tell whether a signature holds."""
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, public)
    except BadSignatureError:
        return False
    return True
