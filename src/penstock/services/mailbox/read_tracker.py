"""Who reads for a shard just now, and what happened since they began: what they bring may be of before. Pure.

What happened is kept in two generations. When nobody is left who began in the older one, it is forgotten and a new one
begins: so it is bounded by how long a read takes, also where there is always somebody who reads.
"""

from __future__ import annotations

from penstock.services.mailbox.ledger import Over
from penstock.services.mailbox.topics import READY, WRITTEN


class ReadTracker:
    """Counts the reads that are under way, and remembers what they may have seen as it is no more."""

    __slots__ = ("_gone", "_now", "_over", "_reading")

    def __init__(self) -> None:
        """Start with nobody reading."""
        self._now = 0
        self._reading = [0, 0]
        self._gone: tuple[set[int], set[int]] = (set(), set())
        self._over: tuple[list[Over], list[Over]] = ([], [])

    def __len__(self) -> int:
        """Return how many reads are under way."""
        return sum(self._reading)

    @property
    def remembered(self) -> int:
        """Return how much is remembered for them."""
        return sum(map(len, (*self._gone, *self._over)))

    def begin(self) -> int:
        """Note a read; what is returned is said again at its end."""
        self._reading[self._now] += 1
        return self._now

    def end(self, generation: int) -> None:
        """Note the end of a read, and forget what nobody can have seen any more."""
        self._reading[generation] -= 1
        before = 1 - self._now
        if self._reading[before]:
            return
        self._release(before)
        if self._reading[self._now]:
            self._now = before
        else:
            self._release(self._now)

    def _release(self, generation: int) -> None:
        self._gone[generation].clear()
        for each in self._over[generation]:
            _rest(each)
        self._over[generation].clear()

    def left(self, seq: int) -> None:
        """Note that a message is durably gone: who reads may have seen it still."""
        if self._reading[0] or self._reading[1]:
            self._gone[self._now].add(seq)

    def saw_gone(self, seq: int) -> bool:
        """Tell whether a message that was read has left since."""
        return seq in self._gone[0] or seq in self._gone[1]

    def over_written(self, over: Over) -> None:
        """Note that the disk has a ready message as it is: it may leave RAM, once nobody reads what was before."""
        if self._reading[0] or self._reading[1]:
            self._over[self._now].append(over)
        else:
            _rest(over)


def _rest(over: Over) -> None:
    message, until = over
    if message.state == READY and message.until == until:
        message.until = WRITTEN
