"""The busiest topics: counts, rates and ages of at most 200; all others are added up as `other`. Pure.

There may be a hundred thousand topics, so nobody looks at all of them at once. A step looks at some of the others in
turn and takes in those that did something since the last look; when there are more than 200, the one that did the least
lately makes room. A topic that is drained stays for an hour, unless a busier one needs its place.

A drained topic is forgotten by the ledger within a second, so one may come and go between two steps. The ledger keeps
those that did something until the next step, at most 256; if there are more, what the rest did is part of `other` only.

The topic with the most dead letters may be a quiet one. The look in turn finds it too: at once where there are at most
2,000 topics, and after a second more for each 2,000 beyond.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heapreplace
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.services.mailbox.ledger import MailboxLedger
    from penstock.services.mailbox.shards.topics import Topic

TOPICS_MAX: Final = 200
LOOKED_AT: Final = 2000
# So many make room for others in a step; the rest wait for the next round, and what they did still counts then.
_CHANGED_MAX: Final = 50
QUIET_S: Final = 3600.0
# How much of the weight of a topic is left after a second without traffic: half after a minute.
_FADE: Final = 0.5 ** (1 / 60)


class BusyTopic:
    """One of the busiest: what is known of it, and what it did in the last second."""

    __slots__ = (
        "acked", "acks", "active_at", "delivered", "in_rate", "name", "oldest_ms", "out_rate", "recv_rate", "recvs",
        "sends", "sent", "topic", "weight",
    )  # fmt: skip

    def __init__(self, topic: Topic, now_s: float) -> None:
        """Begin to count; what was before belongs to `other`."""
        self.name = topic.name
        self.topic = topic
        self.sends, self.recvs, self.acks = topic.sends, topic.recvs, topic.acks
        self.sent = self.delivered = self.acked = 0
        self.in_rate = self.recv_rate = self.out_rate = 0.0
        self.weight = 0.0
        self.active_at = now_s
        # When its oldest message was sent (Unix ms), as the disk last told; 0 for none.
        self.oldest_ms = 0

    def step(self, lives: Iterable[Topic], now_s: float, passed_s: float) -> tuple[int, int, int]:
        """Take what happened since the last step; returns it. `lives` are the topics of its name, the present last."""
        sent, delivered, acked = self._news()
        for topic in lives:
            if topic is not self.topic:
                # It was forgotten when it was empty, and has begun again.
                self.topic, self.sends, self.recvs, self.acks = topic, 0, 0, 0
                begun = self._news()
                sent, delivered, acked = sent + begun[0], delivered + begun[1], acked + begun[2]
        topic = self.topic
        self.sent += sent
        self.delivered += delivered
        self.acked += acked
        self.in_rate, self.recv_rate, self.out_rate = sent / passed_s, delivered / passed_s, acked / passed_s
        self.weight = self.weight * _FADE**passed_s + sent + delivered + acked
        if sent or delivered or acked or topic.living or topic.dead:
            self.active_at = now_s
        return sent, delivered, acked

    def _news(self) -> tuple[int, int, int]:
        """Take what its topic did since this was asked last."""
        topic = self.topic
        news = topic.sends - self.sends, topic.recvs - self.recvs, topic.acks - self.acks
        self.sends, self.recvs, self.acks = topic.sends, topic.recvs, topic.acks
        topic.sampled = topic.sends + topic.recvs + topic.acks
        return news

    def begin(self, passed_s: float) -> None:
        """Take all that a new topic did as the doing of the last second: it was not there before."""
        self.in_rate, self.recv_rate, self.out_rate = (n / passed_s for n in (self.sends, self.recvs, self.acks))

    @property
    def ready(self) -> int:
        """Return how many could be delivered now."""
        return max(0, self.topic.living - self.topic.inflight - self.topic.delayed)


class BusiestTopics:
    """Follows the busiest topics of a ledger. `step` is called once a second."""

    def __init__(self, ledger: MailboxLedger) -> None:
        self.ledger = ledger
        self.busy: dict[str, BusyTopic] = {}
        # What all others did since the process began.
        self.other_sent = self.other_delivered = self.other_acked = 0
        self._totals = (0, 0, 0)
        self._at: float | None = None
        # The name that the round over all topics has come to.
        self._after = ""
        # The topic with the most dead letters of all that were looked at; its count is read anew whenever it is asked.
        self._deadliest: Topic | None = None

    def step(self, now_s: float) -> list[str]:
        """Bring everything up to date; returns the names that are followed no longer."""
        passed_s = 1.0 if self._at is None else max(0.001, now_s - self._at)
        self._at = now_s
        ledger = self.ledger
        departed, ledger.departed = ledger.departed, []
        lives: dict[str, list[Topic]] = {}
        for topic in departed:
            lives.setdefault(topic.name, []).append(topic)
        sums = [0, 0, 0]
        for each in self.busy.values():
            present = ledger.topics.get(each.name)
            known = [*lives.get(each.name, ()), *(() if present is None else (present,))]
            for place, count in enumerate(each.step(known, now_s, passed_s)):
                sums[place] += count
        before, self._totals = self._totals, (ledger.sent, ledger.delivered, ledger.acked)
        self.other_sent += max(0, ledger.sent - before[0] - sums[0])
        self.other_delivered += max(0, ledger.delivered - before[1] - sums[1])
        self.other_acked += max(0, ledger.acked - before[2] - sums[2])
        whole = not self._after
        topics = self._some()
        self._compare_dead(topics)
        # Those that a round over many topics comes to now and then may have done it at any time of the round.
        new_s = passed_s if whole and not self._after else None
        gone = self._take_in(departed, now_s, passed_s)
        return [*self._let_go(now_s), *gone, *self._take_in(topics, now_s, new_s)]

    def _let_go(self, now_s: float) -> list[str]:
        quiet = [name for name, each in self.busy.items() if now_s - each.active_at > QUIET_S]
        for name in quiet:
            del self.busy[name]
        return quiet

    def _some(self) -> list[Topic]:
        """Take the next topics in turn; all of them where there are few."""
        names = self.ledger.topic_names.page(self._after, "", LOOKED_AT)
        self._after = names[-1] if len(names) == LOOKED_AT else ""
        return [self.ledger.topics[name] for name in names]

    def _compare_dead(self, topics: Iterable[Topic]) -> None:
        """Keep the topic with the most dead letters; when they are taken from it, this round or the next finds another.

        Each topic is looked at as it is now: the best of the rounds before is compared with its present count.
        """
        known = (each.topic for each in self.busy.values())
        self._deadliest = max((*topics, *known, *self._still_there()), key=lambda topic: topic.dead, default=None)

    def _still_there(self) -> tuple[Topic, ...]:
        """Return the topic with the most dead letters, unless the ledger has forgotten it."""
        topic = self._deadliest
        return () if topic is None or self.ledger.topics.get(topic.name) is not topic else (topic,)

    def _take_in(self, topics: Iterable[Topic], now_s: float, new_s: float | None) -> list[str]:
        """Follow those that did something, or that hold something while there is room.

        One that nobody has looked at before did all of it in the last `new_s` seconds; None where that is not known.
        """
        gone: list[str] = []
        # The lightest first, once there is no room; made once a step, not for every topic that is looked at.
        lightest: list[tuple[float, str]] = []
        for topic in topics:
            done = topic.sends + topic.recvs + topic.acks - topic.sampled
            if topic.name in self.busy or not (done or topic.living or topic.dead) or len(gone) >= _CHANGED_MAX:
                continue
            is_new = not topic.sampled
            topic.sampled += done
            if len(self.busy) >= TOPICS_MAX:
                if not lightest:
                    lightest = [(each.weight, name) for name, each in self.busy.items()]
                    heapify(lightest)
                weight, name = lightest[0]
                if weight >= done:
                    continue
                heapreplace(lightest, (done, topic.name))
                del self.busy[name]
                gone.append(name)
            each = self.busy[topic.name] = BusyTopic(topic, now_s)
            each.weight = done
            if is_new and new_s is not None:
                each.begin(new_s)
        return gone

    def unfollowed(self) -> int:
        """Return how many topics there are besides these, of which some may have been drained and forgotten."""
        return len(self.ledger.topics) - sum(name in self.ledger.topics for name in self.busy)

    def with_messages(self) -> list[BusyTopic]:
        """Return those that hold living messages."""
        return [each for each in self.busy.values() if each.topic.living]

    def most_dead(self) -> Topic | None:
        """Return the topic with the most dead letters, followed or not, if any has some."""
        return next((topic for topic in self._still_there() if topic.dead), None)

    def first(self, count: int) -> list[BusyTopic]:
        """Return the heaviest, those with dead letters before all others."""
        ordered = sorted(self.busy.values(), key=lambda each: (-each.topic.dead, -each.weight, -each.topic.living))
        return list(islice(ordered, count))
