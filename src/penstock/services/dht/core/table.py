"""The routing table as readers see it: 64 bucket views, each replaced whole by its writer. Pure.

`closest` relies on the order of buckets around a target. With d = own id XOR target and b the bucket of the target,
bucket b holds the nodes nearest to it. Then come the deeper buckets whose bit is set in d, from shallow to deep, then
those whose bit is not set, from deep to shallow, and last the shallower buckets, from b - 1 up to 0. Every node of one
bucket is nearer than every node of the next, so that only buckets which are needed are looked at and sorted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from penstock.services.dht.core.bucket import BucketView
from penstock.services.dht.core.ids import BUCKETS, ID_BITS, bucket_of

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact

_TOP_BIT: Final = ID_BITS - 1
_NOBODY: Final[frozenset[int]] = frozenset()


class RoutingTable:
    """Read by everybody; `publish` is called by a bucket's one writer."""

    __slots__ = ("_deepest", "own", "views")

    def __init__(self, own: int) -> None:
        self.own = own
        self.views: list[BucketView] = [BucketView()] * BUCKETS
        self._deepest = 0

    def __len__(self) -> int:
        """Return how many contacts there are."""
        return sum(len(view.contacts) for view in self.views)

    def publish(self, bucket: int, view: BucketView) -> None:
        """Replace what readers see of one bucket, in one step."""
        self.views[bucket] = view
        if view.contacts:
            self._deepest = max(self._deepest, bucket)

    def contacts(self) -> Iterator[Contact]:
        """Go through every contact."""
        for view in self.views:
            yield from view.contacts

    def closest(self, target: int, count: int, without: Collection[int] = _NOBODY) -> list[Contact]:
        """Return the contacts nearest to a target, nearest first, leaving out some ids."""
        found: list[Contact] = []
        for bucket in self._around(target):
            by_id = self.views[bucket].by_id
            if not by_id:
                continue
            # Sorting the distances and turning each back into its id is twice as fast as sorting contacts by a key.
            near = [by_id[away ^ target] for away in sorted([node_id ^ target for node_id in by_id])]
            found += [contact for contact in near if contact.id not in without] if without else near
            if len(found) >= count:
                return found[:count]
        return found

    def _around(self, target: int) -> Iterator[int]:
        """Name the buckets from the nearest to the target outwards."""
        distance = self.own ^ target
        start, deepest = bucket_of(self.own, target), self._deepest
        yield start
        for bucket in range(start + 1, deepest + 1):
            if distance >> _TOP_BIT - bucket & 1:
                yield bucket
        for bucket in range(deepest, start, -1):
            if not distance >> _TOP_BIT - bucket & 1:
                yield bucket
        yield from range(start - 1, -1, -1)

    def nonempty(self) -> int:
        """Return how many buckets hold anybody."""
        return sum(bool(view.contacts) for view in self.views)
