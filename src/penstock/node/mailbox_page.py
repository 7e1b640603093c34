"""What svc-mailbox adds to the operator's page: its figures, its busiest topics, their metrics and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.admin.concern import Concern, PagePart
from penstock.admin.readings import PerSecond
from penstock.net.server.route import Route
from penstock.node.topic_search import TopicSearch
from penstock.services.mailbox.shards.busiest import TOPICS_MAX, BusiestTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.kernel.metrics import Metrics
    from penstock.net.message import Request
    from penstock.services.mailbox.ledger import MailboxLedger
    from penstock.services.mailbox.service import MailboxService
    from penstock.services.mailbox.shards.busiest import BusyTopic

# A message that waits for so long is worth a look.
OLD_S: Final = 300.0
BACKLOG_WARN: Final = 0.8
_GROUPS_MAX: Final = 500
_OTHER: Final = "other"


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead letters of one topic that died for one reason: how many, and when the first and the last died."""

    topic: str
    reason: str
    count: int
    first_at: int
    last_at: int


class DeadGroups(msgspec.Struct, frozen=True):
    """The groups, the largest first."""

    groups: list[DeadGroup]


class MailboxPage:
    """Reads the mailbox's state once a second; the ages of the oldest messages come from the disk.

    The oldest message of all is one look at the disk, whatever the number of topics. Of the busiest topics each is
    looked at as well, for the rows that are shown.
    """

    def __init__(self, service: MailboxService, metrics: Metrics) -> None:
        self._service = service
        self._ledger = service.state.ledger
        self.topics = BusiestTopics(self._ledger)
        self._search = TopicSearch(self.topics, self._oldest_of, lambda: service.state.now().wall)
        self._rates = PerSecond()
        # The oldest living message of the whole mailbox as the disk last told: the number of its topic, and when it was
        # sent (Unix ms).
        self._first: tuple[int, int] | None = None
        self._metrics = TopicMetrics(metrics, self.topics)
        ledger = self._ledger
        for word, read in (
            ("sent", lambda: ledger.sent), ("delivered", lambda: ledger.delivered), ("acked", lambda: ledger.acked),
        ):  # fmt: skip
            metrics.watched(f"messages_{word}_total", f"Messages {word} since the start.").append(read)

    def part(self) -> PagePart:
        """Describe what is added to the page."""
        route = Route(
            method="GET",
            path="/dead-letters",
            handler=self._groups,
            answer=DeadGroups,
            summary="Dead letters by topic and reason.",
            errors=("not_ready",),
        )
        return PagePart(
            readings=self.read,
            facts=self.facts,
            concerns=self.concerns,
            refresh=self.look,
            routes=(route, self._search.route()),
        )

    # --- once a second

    def read(self, now: float) -> dict[str, float]:
        """Return the figures of this second."""
        ledger = self._ledger
        self._metrics.update(self.topics.step(now))
        counts = {"sent": ledger.sent, "delivered": ledger.delivered, "acked": ledger.acked}
        values = self._rates.rates(counts, now)
        values |= {
            "waiting": float(max(0, ledger.messages - ledger.dead - ledger.inflight)),
            "inflight": float(ledger.inflight),
            "dead": float(ledger.dead),
            "oldest_s": self._oldest_age_s(),
        }
        for each in self.topics.busy.values():
            values[f"topic.in:{each.name}"] = each.in_rate
            values[f"topic.recv:{each.name}"] = each.recv_rate
            values[f"topic.out:{each.name}"] = each.out_rate
            values[f"topic.left:{each.name}"] = each.topic.living - each.topic.inflight
        return values

    def _oldest_age_s(self) -> float:
        """Return the age of the oldest message of all; that of the last look, unless nothing is left since."""
        ledger = self._ledger
        return 0.0 if self._first is None or ledger.messages <= ledger.dead else self._age_s(self._first[1])

    def _age_s(self, sent_ms: int) -> float:
        return max(0.0, (self._service.state.now().wall - sent_ms) / 1000) if sent_ms else 0.0

    async def look(self) -> None:
        """Read when the oldest message of all was sent, and the oldest of each of the busiest topics."""
        if not self._service.state.ready:
            self._first = None
            return
        reader = self._service.parts.reader
        self._first = await reader.ask(reader.reads.oldest_of_all)
        wanted = self.topics.with_messages()
        if not wanted:
            return
        found = await self._oldest_of([each.topic.id for each in wanted])
        for each, oldest in zip(wanted, found, strict=True):
            each.oldest_ms = oldest or 0

    async def _oldest_of(self, topics: list[int]) -> Sequence[int | None]:
        if not self._service.state.ready:
            return [None] * len(topics)
        reads = self._service.parts.reader.reads
        return await self._service.parts.reader.ask(lambda: list(map(reads.oldest, topics)))

    # --- frames and concerns

    def facts(self) -> dict[str, object]:
        """Return the busiest topics with their counts."""
        ledger = self._ledger
        return {
            "topics": [self._row(each) for each in self.topics.first(TOPICS_MAX)],
            "mailbox": {
                "topics": len(ledger.topics),
                "unfollowed": self.topics.unfollowed(),
                "messages": ledger.messages,
                "messages_max": ledger.bounds.backlog_messages,
                "bytes": ledger.bytes,
                "bytes_max": ledger.bounds.backlog_bytes,
                "dead": ledger.dead,
                "died": ledger.died,
            },
        }

    def _row(self, each: BusyTopic) -> dict[str, object]:
        topic = each.topic
        return {
            "topic": each.name,
            "ready": each.ready,
            "inflight": topic.inflight,
            "delayed": topic.delayed,
            "dead": topic.dead,
            "bytes": topic.bytes,
            "receivers": len(topic.waiters),
            "oldest_s": round(self._age_s(each.oldest_ms), 1) if topic.living else 0.0,
            "in": round(each.in_rate, 2),
            "out": round(each.out_rate, 2),
        }

    def concerns(self) -> Sequence[Concern]:
        """Tell of dead letters, of messages that wait too long, and of a backlog that is nearly full."""
        return [*self._dead(), *self._old(), *self._full()]

    def _dead(self) -> list[Concern]:
        dead = self._ledger.dead
        if not dead:
            return []
        most = self.topics.most_dead()
        count = 0 if most is None else most.dead
        share = (
            "The dead letter is" if dead == 1 else f"{'All' if count == dead else f'{count:,} of the'} dead letters are"
        )
        where = "" if most is None else f"{share} in {most.name}"
        return [Concern("warn", f"{dead:,} dead letters" if dead > 1 else "a dead letter", where, "dead")]

    def _old(self) -> list[Concern]:
        age_s = self._oldest_age_s()
        topic = None if self._first is None else self._ledger.by_id.get(self._first[0])
        if topic is None or age_s < OLD_S:
            return []
        words = f"{topic.name} has a message that has waited for {age_s / 60:,.0f} min"
        nobody = "" if topic.waiters or topic.inflight else ", and nobody receives from it"
        return [Concern("warn", "old messages", words + nobody, "topics")]

    def _full(self) -> list[Concern]:
        ledger = self._ledger
        used = max(ledger.messages / ledger.bounds.backlog_messages, ledger.bytes / ledger.bounds.backlog_bytes)
        if used < BACKLOG_WARN:
            return []
        return [Concern("bad", "a backlog that is nearly full", f"The backlog is {used:.0%} full", "topics")]

    # --- dead letters

    async def _groups(self, _request: Request) -> DeadGroups:
        found = await self._service.parts.reader.ask(self._service.parts.reader.reads.dead_groups, _GROUPS_MAX)
        topics = self._ledger.by_id
        return DeadGroups(
            [
                DeadGroup(topics[topic].name, reason, count, first, last)
                for topic, reason, count, first, last in found
                if topic in topics
            ]
        )


class TopicMetrics:
    """The busiest topics as metrics with the label `topic`; all others are summed under `other`."""

    _COUNTS: Final = (
        ("topic_sent_total", "sent", "Messages stored, by topic; those beyond the busiest as other."),
        ("topic_delivered_total", "delivered", "Messages handed out, by topic; those beyond the busiest as other."),
        ("topic_acked_total", "acked", "Messages acknowledged, by topic; those beyond the busiest as other."),
    )
    # What one topic has of it, and what all have together.
    _GAUGES: Final[tuple[tuple[str, str, Callable[[BusyTopic], int], Callable[[MailboxLedger], int]], ...]] = (
        (
            "topic_waiting",
            "Messages that wait to be delivered, by topic.",
            lambda each: each.topic.living - each.topic.inflight,
            lambda ledger: ledger.messages - ledger.dead - ledger.inflight,
        ),
        (
            "topic_inflight",
            "Messages leased, by topic.",
            lambda each: each.topic.inflight,
            lambda ledger: ledger.inflight,
        ),
        ("topic_dead", "Dead letters, by topic.", lambda each: each.topic.dead, lambda ledger: ledger.dead),
    )

    def __init__(self, metrics: Metrics, topics: BusiestTopics) -> None:
        self._metrics = metrics
        self._topics = topics
        # The instruments of each topic that is followed.
        self._kept: dict[str, tuple[list[Any], list[Any]]] = {}
        for name, _, text in self._COUNTS:
            metrics.declare("counter", name, text, "topic")
        for name, text, *_ in self._GAUGES:
            metrics.declare("gauge", name, text, "topic")

    def update(self, gone: Sequence[str]) -> None:
        """Write down where the busiest stand, and forget those that are followed no longer."""
        for topic in gone:
            self._kept.pop(topic, None)
            for family in (*(row[0] for row in self._COUNTS), *(row[0] for row in self._GAUGES)):
                self._metrics.forget(family, topic=topic)
        # A topic of that very name is counted with the others: a label has one meaning.
        busy = [each for each in self._topics.busy.values() if each.name != _OTHER]
        left = [total(self._topics.ledger) for *_, total in self._GAUGES]
        for each in busy:
            self._write(each, left)
        named_so = self._topics.busy.get(_OTHER)
        for name, field, _ in self._COUNTS:
            rest = 0 if named_so is None else getattr(named_so, field)
            self._set(name, _OTHER, getattr(self._topics, f"other_{field}") + rest)
        for (name, *_), rest in zip(self._GAUGES, left, strict=True):
            self._metrics.gauge(name, topic=_OTHER).set(max(0, rest))

    def _write(self, each: BusyTopic, left: list[int]) -> None:
        """Set what is told of one topic, and take it off what is left for the others."""
        counters, gauges = self._kept.get(each.name) or self._keep(each.name)
        for counter, (_, field, _) in zip(counters, self._COUNTS, strict=True):
            counter.value = getattr(each, field)
        for place, (gauge, (_, _, read, _)) in enumerate(zip(gauges, self._GAUGES, strict=True)):
            count = read(each)
            left[place] -= count
            gauge.set(count)

    def _keep(self, topic: str) -> tuple[list[Any], list[Any]]:
        """Find the instruments of a topic once: looking them up by their labels takes longer than setting them."""
        found = (
            [self._metrics.counter(name, topic=topic) for name, *_ in self._COUNTS],
            [self._metrics.gauge(name, topic=topic) for name, *_ in self._GAUGES],
        )
        self._kept[topic] = found
        return found

    def _set(self, name: str, topic: str, count: int) -> None:
        counter: Any = self._metrics.counter(name, topic=topic)
        counter.value = count
