"""A bounded memory of what was worked out before. Pure.

Hot paths remember: the route of a request line, the digest of a token, the parsed form of a head. What clients choose
must never fill the process, so a memo has a capacity, and forgets its oldest entries when it is full. It is only ever
a saving: whoever finds nothing works the value out again. `Inventory.memo` lists it with the other limits of its
service.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Taking one entry at a time from the front of a dictionary looks at every place that was emptied before it, so a full
# memo makes room for several at once.
_FORGOTTEN_PART: Final = 8


class Memo(Generic[K, V]):
    """A dictionary with a capacity; when it is full, the eighth of its entries that was put in first is forgotten."""

    __slots__ = ("_offered", "capacity", "forgotten", "get", "items")

    def __init__(self, capacity: int) -> None:
        """Bound it; `get` is the dictionary's own, because it stands on the hottest paths there are."""
        if capacity < 1:
            raise ValueError(f"a memo holds at least one entry, not {capacity}")
        self.capacity = capacity
        # How many entries had to make room.
        self.forgotten = 0
        self.items: dict[K, V] = {}
        # Hashes of keys that `put_again` was given once; begun anew when there are as many as entries may be.
        self._offered: set[int] = set()
        self.get = self.items.get

    def put(self, key: K, value: V) -> V:
        """Remember a value and return it."""
        items = self.items
        if len(items) >= self.capacity and key not in items:
            self._make_room()
        items[key] = value
        return value

    def put_again(self, key: K, value: V) -> V:
        """Remember a value whose key comes for the second time, and return it.

        For keys of which many never come again: those take no entry, and push out none that is of use.
        """
        offered, name = self._offered, hash(key)
        if name in offered:
            offered.discard(name)
            return self.put(key, value)
        if len(offered) >= self.capacity:
            offered.clear()
        offered.add(name)
        return value

    def _make_room(self) -> None:
        oldest = list(islice(self.items, max(1, self.capacity // _FORGOTTEN_PART)))
        for key in oldest:
            del self.items[key]
        self.forgotten += len(oldest)

    def drop(self, key: K) -> None:
        """Forget one entry, if it is there."""
        self.items.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self.items.clear()
        self._offered.clear()

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.items)
