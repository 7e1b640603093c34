"""Which small objects there are, and where each lies: in a pack, or in a file of its own. Pure.

Entries stand in 65,536 buckets by the first two bytes of their digest. A bucket is one run of bytes: for each object
the next 20 bytes of its digest and 8 bytes that say where it is. So an object costs 30 to 60 bytes of memory, and is
found by one search through a short run. Together that is 176 bits of the digest: two objects that share them are as
unlikely as in a hash of that length. Whoever changes only the rest of an address finds the object of another one:
what is read is held against the whole address, so they are not mixed up.

The thread that commits is the only writer. Others may look while it writes: every change is a single step of the
interpreter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_DIGEST_BYTES: Final = 20
_PLACE_BYTES: Final = 8
_ENTRY_BYTES: Final = _DIGEST_BYTES + _PLACE_BYTES
_SIZE_BITS: Final = 17
_OFFSET_BITS: Final = 27
# So much of a digest is known here, bucket and entry together.
KNOWN_BYTES: Final = 2 + _DIGEST_BYTES
# The greatest number a pack can have.
PACKS_MAX: Final = (1 << 64 - _SIZE_BITS - _OFFSET_BITS) - 1


class PackPlace(NamedTuple):
    """Where the bytes of an object are. Pack 0 stands for a file of its own."""

    pack: int
    offset: int
    size: int


LOOSE: Final = PackPlace(0, 0, 0)


class ObjectIndex:
    """Finds small objects by their digest; holds at most `objects_max`."""

    __slots__ = ("_buckets", "complete", "count", "objects_max")

    def __init__(self, objects_max: int) -> None:
        self.objects_max = objects_max
        self.count = 0
        # False once an object found no room here: then only the disk can tell what is not there.
        self.complete = True
        self._buckets: dict[int, bytearray] = {}

    @property
    def full(self) -> bool:
        """Tell whether no further object can be noted."""
        return self.count >= self.objects_max

    def find(self, digest: bytes) -> PackPlace | None:
        """Say where an object is; None when it is not here."""
        bucket = self._buckets.get(digest[0] << 8 | digest[1])
        at = -1 if bucket is None else _search(bucket, digest[2 : 2 + _DIGEST_BYTES])
        if bucket is None or at < 0:
            return None
        place = int.from_bytes(bucket[at + _DIGEST_BYTES : at + _ENTRY_BYTES], "big")
        return PackPlace(
            place >> _OFFSET_BITS + _SIZE_BITS,
            place >> _SIZE_BITS & (1 << _OFFSET_BITS) - 1,
            place & (1 << _SIZE_BITS) - 1,
        )

    def put(self, digest: bytes, place: PackPlace) -> PackPlace | None:
        """Note where an object is; return where it was before. A full index notes nothing new and says so."""
        written = (place.pack << _OFFSET_BITS + _SIZE_BITS | place.offset << _SIZE_BITS | place.size).to_bytes(8, "big")
        before = self.find(digest)
        if before is not None:
            bucket = self._buckets[digest[0] << 8 | digest[1]]
            at = _search(bucket, digest[2 : 2 + _DIGEST_BYTES]) + _DIGEST_BYTES
            bucket[at : at + _PLACE_BYTES] = written
        elif self.full:
            self.complete = False
        else:
            bucket = self._buckets.setdefault(digest[0] << 8 | digest[1], bytearray())
            bucket += digest[2 : 2 + _DIGEST_BYTES] + written
            self.count += 1
        return before


def _search(bucket: bytearray, digest: bytes) -> int:
    """Return where the entry with this digest begins, or -1."""
    at = bucket.find(digest)
    while at > 0 and at % _ENTRY_BYTES:
        # The same bytes by chance, across two entries.
        at = bucket.find(digest, at + 1)
    return at
