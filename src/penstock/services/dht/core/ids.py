"""Node ids and keys: 256-bit numbers, their XOR distance and the bucket a distance belongs to. Pure."""

from __future__ import annotations

import re
from typing import Final

from blake3 import blake3

from penstock.kernel.errors import Malformed

ID_BITS: Final = 256
ID_BYTES: Final = 32
BUCKETS: Final = 64
_KEY: Final = re.compile(r"(?:b3:)?([0-9a-fA-F]{64})", re.ASCII)


def bucket_of(own: int, other: int) -> int:
    """Return the bucket of `other`: the number of leading bits it shares with `own`, at most the last bucket's."""
    return min(ID_BITS - (own ^ other).bit_length(), BUCKETS - 1)


def id_of_key(public_key: bytes) -> int:
    """Return the node id of an Ed25519 public key."""
    return int.from_bytes(blake3(public_key).digest(), "big")


def to_bytes(number: int) -> bytes:
    """Write an id or key as its 32 bytes."""
    return number.to_bytes(ID_BYTES, "big")


def from_bytes(data: object) -> int:
    """Read an id or key from its 32 bytes; anything else is Malformed."""
    if type(data) is not bytes or len(data) != ID_BYTES:
        raise Malformed("An id has 32 bytes.", reason="bad_id")
    return int.from_bytes(data, "big")


def to_text(number: int) -> str:
    """Write an id or key as 64 hex digits."""
    return f"{number:064x}"


def parse_key(text: str) -> int:
    """Read a key: 64 hex digits, or `b3:` and 64 hex digits."""
    match = _KEY.fullmatch(text)
    if match is None:
        raise Malformed("A key is 64 hex digits, with or without b3: in front.", reason="bad_key")
    return int(match[1], 16)
