"""When which region of the key space is published again. Pure.

A publisher with many keys must not walk to each of them. The key space is cut into regions of about k nodes; one walk
to a region finds the nodes for all keys in it. Each region has its own place in the interval, so that walks are
spread, and a region whose time passed while the node was down comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from penstock.services.dht.core.ids import ID_BITS

INTERVAL_S_MAX: Final = 12 * 3600
TTL_SHARE: Final = 0.45
REGION_BITS_MAX: Final = 16
# A record published just before its region's turn waits for the next one, unless that would be too late.
_TOO_SOON: Final = 0.25


class Publishable(Protocol):
    """As much of an own record as the plan looks at."""

    @property
    def key(self) -> int:
        """The key it announces."""
        ...

    @property
    def ttl_s(self) -> int:
        """How long it counts."""
        ...

    @property
    def published_ms(self) -> int:
        """When it was last sent out; 0 for never."""
        ...


class Region(NamedTuple):
    """A part of the key space: the first `bits` bits of its keys."""

    bits: int
    prefix: int

    @property
    def middle(self) -> int:
        """Return the key in the middle, which a walk goes to."""
        width = ID_BITS - self.bits
        return (self.prefix << width) | (1 << width - 1)


class DueRegion(NamedTuple):
    """A region whose time has come, with the keys to publish there."""

    region: Region
    keys: tuple[int, ...]
    due_ms: int


def region_bits(nodes: float, k: int) -> int:
    """Return how many bits name a region of about k nodes."""
    return min(max(0, int(nodes / k).bit_length() - 1), REGION_BITS_MAX)


def region_of(key: int, bits: int) -> Region:
    """Return the region a key lies in."""
    return Region(bits, key >> ID_BITS - bits)


def interval_ms(ttl_s: int) -> int:
    """Return how often a record of that ttl is published."""
    return int(min(INTERVAL_S_MAX, TTL_SHARE * ttl_s) * 1000)


def due_ms(record: Publishable, bits: int, jitter: float) -> int:
    """Return when a record is next published: at its region's place in the interval. `jitter` is 0-1, one a node."""
    if not record.published_ms:
        return 0
    interval = interval_ms(record.ttl_s)
    region = region_of(record.key, bits)
    place = int((region.prefix / (1 << bits) + jitter) % 1.0 * interval)
    earliest = record.published_ms + int(_TOO_SOON * interval)
    return earliest + (place - earliest) % interval


class DuePlan:
    """What is due at one moment. Records are looked at a few at a time: a node may have a hundred thousand."""

    def __init__(self, bits: int, now_ms: int, jitter: float) -> None:
        self._bits = bits
        self._now_ms = now_ms
        self._jitter = jitter
        self._regions: dict[Region, list[tuple[int, int]]] = {}
        self.next_ms: int | None = None  # when the first of the others is due

    def look(self, own: Iterable[Publishable]) -> None:
        """Judge some records."""
        for record in own:
            due = due_ms(record, self._bits, self._jitter)
            if due <= self._now_ms:
                self._regions.setdefault(region_of(record.key, self._bits), []).append((due, record.key))
            elif self.next_ms is None or due < self.next_ms:
                self.next_ms = due

    def regions(self) -> list[DueRegion]:
        """Return the regions to publish now, the longest overdue first; each with all its keys that are due."""
        found = [
            DueRegion(region, tuple(key for _, key in sorted(keys)), min(keys)[0])
            for region, keys in self._regions.items()
        ]
        return sorted(found, key=lambda each: (each.due_ms, each.region))
