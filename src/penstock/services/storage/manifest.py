"""How an object lies in its file, and how any part of it can be believed without reading the rest. Pure.

An object of at most one leaf is its own file, byte for byte. A larger one is followed by the digests of its leaves and
a footer, whose seal covers the address, the size and the leaves' digests: a manifest of another object, or a changed
bit anywhere in it, does not hold.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from penstock.kernel.errors import Integrity, NotFound

LEAF_BYTES: Final = 64 << 10
DIGEST_BYTES: Final = 32
_MAGIC: Final = b"penstock.object1"
_FOOTER: Final = struct.Struct(">16sQQ32s")
_SEAL: Final = "penstock svc-storage object manifest v1"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The digests of an object's leaves, all of 64 KiB but the last; empty for an object of one leaf."""

    address: str
    size: int
    leaves: bytes = b""

    def encode(self) -> bytes:
        """Write what follows the bytes of a large object in its file."""
        count = len(self.leaves) // DIGEST_BYTES
        return self.leaves + _FOOTER.pack(_MAGIC, self.size, count, self._seal())

    def _seal(self) -> bytes:
        sealed = bytes.fromhex(self.address[3:]) + struct.pack(">Q", self.size) + self.leaves
        return blake3(sealed, derive_key_context=_SEAL).digest()

    def check(self, first: int, data: bytes) -> None:
        """Refuse bytes, from leaf `first` on, that are not what was stored."""
        if not self.leaves:
            _hold(blake3(data).digest() == bytes.fromhex(self.address[3:]))
            return
        view = memoryview(data)
        for number, at in enumerate(range(0, len(data), LEAF_BYTES), first):
            digest = blake3(view[at : at + LEAF_BYTES]).digest()
            _hold(digest == self.leaves[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES])


def leaf_count(size: int) -> int:
    """Return into how many leaves so many bytes are cut."""
    return -(-size // LEAF_BYTES)


def manifest_bytes(size: int) -> int:
    """Return how many bytes follow an object of this size in its file."""
    return 0 if size <= LEAF_BYTES else leaf_count(size) * DIGEST_BYTES + _FOOTER.size


def object_bytes(file_bytes: int) -> int | None:
    """Return the size of the object in a file of this size; None when no object makes such a file."""
    if file_bytes <= LEAF_BYTES:
        return file_bytes
    leaves = -(-(file_bytes - _FOOTER.size) // (LEAF_BYTES + DIGEST_BYTES))
    size = file_bytes - _FOOTER.size - leaves * DIGEST_BYTES
    return size if size > LEAF_BYTES and size + manifest_bytes(size) == file_bytes else None


def decode(address: str, size: int, written: bytes) -> Manifest:
    """Read the manifest of a large object; Integrity unless every bit of it is as it was written."""
    _hold(len(written) == manifest_bytes(size), "manifest")
    found = Manifest(address, size, written[: -_FOOTER.size])
    _hold(found.encode() == written, "manifest")
    return found


def damaged(reason: str) -> Integrity:
    """Make the refusal of an object that is not what its address says."""
    return Integrity("The stored object is damaged.", reason=reason)


def absent() -> NotFound:
    """Make the refusal of an address that nothing is stored under."""
    return NotFound("There is no object at this address.")


def _hold(good: bool, reason: str = "payload") -> None:  # noqa: FBT001 - reads as an assertion
    if not good:
        raise damaged(reason)
