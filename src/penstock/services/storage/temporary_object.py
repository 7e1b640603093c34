"""An object being written: its digests so far. Hashing happens where the bytes are written, on a pool's thread."""

from __future__ import annotations

from blake3 import blake3

from penstock.services.storage.manifest import LEAF_BYTES, Manifest
from penstock.wire.ids import format_address


class TemporaryObject:
    """The whole leaves of an object that has no address yet, under a temporary name."""

    __slots__ = ("_leaves", "_whole", "dropped", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        # Set by whoever gives the draft up; a thread that is just making its file then removes it again.
        self.dropped = False
        self._whole = blake3()
        self._leaves = bytearray()

    def add(self, leaves: bytes | memoryview) -> None:
        """Hash further whole leaves."""
        view = memoryview(leaves)
        for at in range(0, len(view), LEAF_BYTES):
            self._leaves += blake3(view[at : at + LEAF_BYTES]).digest()
        self._whole.update(leaves)
        self.size += len(view)

    def manifest(self, tail: bytes) -> Manifest:
        """Return what the object would be if `tail` were its last leaf; changes nothing."""
        whole = self._whole.copy()
        whole.update(tail)
        leaves = bytes(self._leaves) + blake3(tail).digest()
        return Manifest(format_address(whole.digest()), self.size + len(tail), leaves)
