"""Which topics have the most messages, found a slice at a time. Pure.

With a hundred thousand topics, one look at all of them would hold the loop for tens of milliseconds. So each call looks
at the next few thousand and keeps the best; what it returns is the result of the last complete round. With no more
topics than a slice, every call is a complete round.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.services.mailbox.ledger import MailboxLedger
    from penstock.services.mailbox.shards.topics import Topic

_SLICE: Final = 4000


class BusiestTopics:
    """The topics to show first: those with dead letters, then those with the most messages."""

    def __init__(self, ledger: MailboxLedger, count: int) -> None:
        self._ledger = ledger
        self._count = count
        self._after = ""
        self._round: list[Topic] = []
        self._best: list[Topic] = []

    def best(self) -> list[Topic]:
        """Go on with the round; returns the best of the last complete one that are still there."""
        names, topics = self._ledger.topic_names.page(self._after, "", _SLICE), self._ledger.topics
        held = [topic for name in names if (topic := topics[name]).living or topic.dead]
        self._round = nsmallest(self._count, self._round + held, key=_rank)
        self._after = names[-1] if len(names) == _SLICE else ""
        if not self._after:
            self._best, self._round = self._round, []
        return [topic for topic in self._best if topics.get(topic.name) is topic]


def _rank(topic: Topic) -> tuple[int, int, str]:
    return -topic.dead, -topic.living, topic.name
