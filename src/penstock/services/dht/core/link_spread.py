"""How a node spreads the connections it may keep over the key space. Pure.

A lookup that finds an open connection to a node near its target saves a dial: two signatures at each end and three
round trips. Targets are spread evenly, so connections should be too: half of all targets are in bucket 0, a quarter in
bucket 1, and so on. But a node's own neighbours are few and all of them matter to it. So half of the places are dealt
out evenly among the buckets, at most k each, and the others as targets fall. When there is one connection too many, it
is taken from the bucket that has most for its share, and there from the eighth that has most: a bucket's contacts are
often neighbours, because one node named them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.services.dht.core.ids import ID_BITS, bucket_of

_EIGHTH_BITS: Final = 3
EIGHTHS: Final = 1 << _EIGHTH_BITS
A_REGION: Final = 2


class LinkRegion(NamedTuple):
    """Where in the key space a peer is, seen from a node."""

    bucket: int
    eighth: int  # which eighth of the bucket


def region_of(own: int, peer: int) -> LinkRegion:
    """Say where a peer is."""
    bucket = bucket_of(own, peer)
    return LinkRegion(bucket, peer >> (ID_BITS - 1 - bucket - _EIGHTH_BITS) & EIGHTHS - 1)


def target_in_region(own: int, region: LinkRegion, drawn: int) -> int:
    """Return an id that lies in a region; its last bits are those of a number that the caller has drawn."""
    width = ID_BITS - 1 - region.bucket
    below = width - _EIGHTH_BITS
    return (own >> width ^ 1) << width | region.eighth << below | drawn & (1 << below) - 1


class LinkRank(NamedTuple):
    """What decides which connection of a region is given up; the greatest goes first."""

    stranger: bool  # the peer is no contact
    quiet: bool  # it has said nothing lately
    unused_s: float  # for so long nothing was asked on it


class LinkStanding:
    """How many connections there are in each bucket and eighth, and how many there should be. Counted as they come."""

    def __init__(self, regions: Iterable[LinkRegion], places: int, k: int) -> None:
        self._by_eighth: Counter[LinkRegion] = Counter()
        self._by_bucket: Counter[int] = Counter()
        self._places = places
        self._k = k
        self._shares: Mapping[int, float] = {}
        for region in regions:
            self.add(region)

    def add(self, region: LinkRegion) -> None:
        """Count a connection."""
        self._by_eighth[region] += 1
        self._by_bucket[region.bucket] += 1
        if self._by_bucket[region.bucket] == 1:
            self._shares = link_shares(self._places, self._by_bucket, self._k)

    def remove(self, region: LinkRegion) -> None:
        """Count it no longer."""
        self._by_eighth[region] -= 1
        self._by_bucket[region.bucket] -= 1
        if not self._by_eighth[region]:
            del self._by_eighth[region]
        if not self._by_bucket[region.bucket]:
            del self._by_bucket[region.bucket]
            self._shares = link_shares(self._places, self._by_bucket, self._k)

    def most_crowded(self) -> list[LinkRegion]:
        """Return the regions that have connections, the one to take from first: by its bucket, then by itself."""
        return sorted(self._by_eighth, key=lambda each: (self.crowding(each), self._by_eighth[each]), reverse=True)

    def crowding(self, region: LinkRegion) -> float:
        """Return how many connections a peer's bucket has for each that it should have."""
        return self._by_bucket[region.bucket] / self._shares[region.bucket]

    def neighbours(self, region: LinkRegion) -> int:
        """Return how many connections a peer's eighth of its bucket has."""
        return self._by_eighth[region]

    def has_room(self, bucket: int) -> bool:
        """Tell whether a bucket has fewer connections than its share."""
        return self._by_bucket[bucket] < self._share(bucket)

    def missing(self, bucket: int) -> int:
        """Return how many connections a bucket lacks to half of its share; callers bring the rest."""
        return max(0, int(self._share(bucket) / 2 + 0.5) - self._by_bucket[bucket])

    def lacking(self, bucket: int) -> Iterator[tuple[LinkRegion, int]]:
        """Go through the eighths of a bucket that have fewer connections than they need, and how many they lack.

        An eighth needs two, so that one may fall silent, or one where the bucket's share is not enough for two in each.
        """
        due = min(A_REGION, int(self._share(bucket) / EIGHTHS))
        for each in range(EIGHTHS):
            region = LinkRegion(bucket, each)
            if self._by_eighth[region] < due:
                yield region, due - self._by_eighth[region]

    def _share(self, bucket: int) -> float:
        shares = self._shares
        if bucket not in shares:
            shares = link_shares(self._places, [*self._by_bucket, bucket], self._k)
        return shares[bucket]


def link_shares(places: int, buckets: Iterable[int], k: int) -> Mapping[int, float]:
    """Return how many of a node's places each bucket should have, for the buckets that are named."""
    used = set(buckets)
    if not used:
        return {}
    evenly = min(float(k), places / 2 / len(used))
    left = max(0.0, places - evenly * len(used))
    weight = sum(2.0**-bucket for bucket in used)
    return {bucket: evenly + left * 2.0**-bucket / weight for bucket in used}
