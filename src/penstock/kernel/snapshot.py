"""The snapshot: an immutable value swapped in one step; readers never lock and never see half of it."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Snapshot(Generic[T]):
    """Holds the current value of something read often and replaced whole. One writer, any readers."""

    __slots__ = ("value", "version")

    def __init__(self, value: T) -> None:
        """Start with a first value."""
        self.value = value
        self.version = 1

    def swap(self, value: T) -> T:
        """Replace the value in one step and return the old one."""
        old, self.value = self.value, value
        self.version += 1
        return old
