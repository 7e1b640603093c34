"""Bounded memories: the oldest makes room. Two kinds that are never confused, proven tokens and proven prefixes."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(Generic[K, V]):
    """A dictionary with a cap; what was put in first leaves first."""

    __slots__ = ("capacity", "get", "items")

    def __init__(self, capacity: int) -> None:
        """Bound it; `get` is the dictionary's own, because it stands on the hottest path there is."""
        if capacity < 1:
            raise ValueError(f"a cache holds at least one entry, not {capacity}")
        self.capacity = capacity
        self.items: dict[K, V] = {}
        self.get = self.items.get

    def put(self, key: K, value: V) -> None:
        """Remember; a full cache forgets its oldest entry."""
        items = self.items
        if key not in items and len(items) >= self.capacity:
            del items[next(iter(items))]
        items[key] = value

    def drop(self, key: K) -> None:
        """Forget one entry, if it is there."""
        self.items.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self.items.clear()

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.items)
