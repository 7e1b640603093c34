"""The names of all topics, in order. Pure.

They stand in blocks of some hundred names, and a list of the blocks' first names leads to the right one. So adding,
removing and finding a name takes microseconds, and a page of names is read without a look at the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

_BLOCK_MAX: Final = 512


class TopicNames:
    """An ordered set of names. The ledger adds and removes them together with their topics."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        # The first name of each block.
        self._firsts: list[str] = []

    def __len__(self) -> int:
        """Count the names."""
        return sum(map(len, self._blocks))

    def add(self, name: str) -> None:
        """Add a name that is not there yet."""
        if not self._blocks:
            self._blocks, self._firsts = [[name]], [name]
            return
        index = self._block_of(name)
        block = self._blocks[index]
        insort(block, name)
        self._firsts[index] = block[0]
        if len(block) > _BLOCK_MAX:
            half = block[_BLOCK_MAX // 2 :]
            del block[_BLOCK_MAX // 2 :]
            self._blocks.insert(index + 1, half)
            self._firsts.insert(index + 1, half[0])

    def discard(self, name: str) -> None:
        """Remove a name; harmless when it is not there."""
        if not self._blocks:
            return
        index = self._block_of(name)
        block = self._blocks[index]
        place = bisect_left(block, name)
        if place == len(block) or block[place] != name:
            return
        del block[place]
        if block:
            self._firsts[index] = block[0]
        else:
            del self._blocks[index], self._firsts[index]

    def _block_of(self, name: str) -> int:
        return max(0, bisect_right(self._firsts, name) - 1)

    def page(self, after: str, prefix: str, limit: int) -> list[str]:
        """Return the next names behind `after` that begin with `prefix`, at most `limit`."""
        if not self._blocks:
            return []
        start = max(after, prefix)
        index = self._block_of(start)
        found: list[str] = []
        # The prefix itself is a name that begins with it; the cursor was shown already.
        place = (bisect_left if start != after else bisect_right)(self._blocks[index], start)
        while index < len(self._blocks) and len(found) < limit:
            found += self._blocks[index][place : place + limit - len(found)]
            index, place = index + 1, 0
            if found and not found[-1].startswith(prefix):
                break
        return [name for name in found if name.startswith(prefix)]

    def clear(self) -> None:
        """Forget all names."""
        self._blocks, self._firsts = [], []
