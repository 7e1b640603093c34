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
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.services.dht.core.ids import ID_BITS, bucket_of

_EIGHTH_BITS: Final = 3


class LinkRegion(NamedTuple):
    """Where in the key space a peer is, seen from a node."""

    bucket: int
    eighth: int  # which eighth of the bucket


def region_of(own: int, peer: int) -> LinkRegion:
    """Say where a peer is."""
    bucket = bucket_of(own, peer)
    return LinkRegion(bucket, peer >> (ID_BITS - 1 - bucket - _EIGHTH_BITS) & (1 << _EIGHTH_BITS) - 1)


class LinkRank(NamedTuple):
    """What decides which connection is given up; the greatest goes first."""

    failing: bool  # the peer did not answer the last request
    crowding: float  # how many connections its bucket has for each that it should have
    neighbours: int  # how many connections its eighth of the bucket has
    stranger: bool  # the peer is no contact
    quiet: bool  # it has said nothing lately
    unused_s: float  # for so long nothing was asked on it


class LinkStanding:
    """How many connections there are in each bucket, and how many there should be."""

    def __init__(self, regions: Iterable[LinkRegion], places: int, k: int) -> None:
        self._by_eighth = Counter(regions)
        self._by_bucket: Counter[int] = Counter()
        for region, count in self._by_eighth.items():
            self._by_bucket[region.bucket] += count
        self._places = places
        self._k = k
        self._shares = link_shares(places, self._by_bucket, k)

    def crowding(self, region: LinkRegion) -> float:
        """Return how many connections a peer's bucket has for each that it should have."""
        return self._by_bucket[region.bucket] / self._shares[region.bucket]

    def neighbours(self, region: LinkRegion) -> int:
        """Return how many connections a peer's eighth of its bucket has."""
        return self._by_eighth[region]

    def missing(self, bucket: int) -> int:
        """Return how many connections a bucket lacks to half of its share; callers bring the rest."""
        shares = self._shares
        if bucket not in shares:
            shares = link_shares(self._places, [*self._by_bucket, bucket], self._k)
        return max(0, int(shares[bucket] / 2 + 0.5) - self._by_bucket[bucket])


def link_shares(places: int, buckets: Iterable[int], k: int) -> Mapping[int, float]:
    """Return how many of a node's places each bucket should have, for the buckets that are named."""
    used = set(buckets)
    if not used:
        return {}
    evenly = min(float(k), places / 2 / len(used))
    left = max(0.0, places - evenly * len(used))
    weight = sum(2.0**-bucket for bucket in used)
    return {bucket: evenly + left * 2.0**-bucket / weight for bucket in used}
