"""How many bytes are stored and how many are promised; changed only on the loop, in single steps. Pure."""

from __future__ import annotations

from typing import Final

from penstock.kernel.errors import OverLimit

INSUFFICIENT_STORAGE: Final = 507


class QuotaLedger:
    """The quota. Bytes are reserved before they are taken in, so that uploads together never pass it."""

    __slots__ = ("bytes_max", "objects", "refused", "reserved_bytes", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        """Start empty; 0 means without a bound."""
        self.bytes_max = bytes_max
        self.objects = 0
        self.used_bytes = 0
        self.reserved_bytes = 0
        self.refused = 0

    def found(self, objects: int, used_bytes: int) -> None:
        """Begin with what was stored before."""
        self.objects = objects
        self.used_bytes = used_bytes

    def check(self, count: int) -> None:
        """Refuse what would not fit; takes nothing."""
        if self.bytes_max and self.used_bytes + self.reserved_bytes + count > self.bytes_max:
            self.refused += 1
            taken = self.used_bytes + self.reserved_bytes
            detail = (
                f"The store is full: {taken} of {self.bytes_max} bytes (storage.max_bytes), {count} more asked for."
            )
            raise OverLimit(detail, limit="storage", status=INSUFFICIENT_STORAGE)

    def reserve(self, count: int) -> None:
        """Promise room for so many bytes, or refuse."""
        self.check(count)
        self.reserved_bytes += count

    def release(self, count: int) -> None:
        """Take a promise back; more than was promised is a bug."""
        if count > self.reserved_bytes:
            raise RuntimeError(f"ledger: released {count} of {self.reserved_bytes}")
        self.reserved_bytes -= count

    def stored(self, size: int) -> None:
        """Turn promised bytes into stored ones."""
        self.release(size)
        self.used_bytes += size
        self.objects += 1
