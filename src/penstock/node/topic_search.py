"""Finding topics among all of a node: by a part of the name, sorted by any figure, the first few of them.

There may be a hundred thousand topics, so they are looked at in runs, and only the first rows are kept. Rates are
measured of the busiest topics alone. The age of the oldest message stands on the disk: it is read of the rows that are
shown, and of all that match where the order asks for it and they are not too many.
"""

from __future__ import annotations

import asyncio
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from penstock.kernel.errors import Malformed
from penstock.net.server.route import Route
from penstock.services.mailbox.shards.busiest import TOPICS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from penstock.net.message import Request
    from penstock.services.mailbox.shards.busiest import BusiestTopics
    from penstock.services.mailbox.shards.topics import Topic

    # When the oldest living message of each topic was sent (Unix ms), by the number of the topic.
    ReadOldest = Callable[[list[int]], Awaitable[Sequence[int | None]]]

_RUN: Final = 1000
# So many ages are read from the disk for one answer; beyond that only the ages of the busiest are compared.
AGES_MAX: Final = 5000

TopicFigure = Literal["topic", "ready", "in", "out", "oldest_s", "inflight", "delayed", "receivers", "bytes", "dead"]


class FindTopics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which topics: `text` is any part of the name; `by` and `down` say which come first."""

    text: Annotated[str, Meta(max_length=256)] = ""
    by: TopicFigure = "ready"
    down: bool = True
    limit: Annotated[int, Meta(ge=1, le=TOPICS_MAX)] = TOPICS_MAX


class TopicFound(msgspec.Struct, frozen=True):
    """One topic as the page shows it; a rate is null where nobody measures it."""

    topic: str
    ready: int
    inflight: int
    delayed: int
    dead: int
    bytes: int
    receivers: int
    oldest_s: float
    in_: float | None = msgspec.field(name="in", default=None)
    out: float | None = None


class FoundTopics(msgspec.Struct, frozen=True):
    """The first of those that match, how many match, and how many there are.

    `aged` is false where the order goes by age and the ages of some that match were not read.
    """

    topics: list[TopicFound]
    found: int
    total: int
    aged: bool


class TopicSearch:
    """Looks through the ledger of the mailbox when somebody asks."""

    def __init__(self, busiest: BusiestTopics, oldest: ReadOldest, wall_ms: Callable[[], float]) -> None:
        """Take rates and ages from those who follow the busiest; read the ages of others by `oldest`."""
        self._busiest = busiest
        self._ledger = busiest.ledger
        self._oldest = oldest
        self._wall_ms = wall_ms

    def route(self) -> Route:
        """Describe the one route."""
        return Route(
            method="GET",
            path="/topics",
            handler=self._tell,
            query=FindTopics,
            answer=FoundTopics,
            summary="Topics by a part of their name, sorted by any figure.",
            errors=("malformed", "not_ready"),
        )

    async def _tell(self, request: Request) -> FoundTopics:
        try:
            asked = msgspec.convert(request.query_params(), FindTopics, strict=False)
        except msgspec.ValidationError as exc:
            raise Malformed(str(exc)) from exc
        return await self.find(asked)

    async def find(self, asked: FindTopics) -> FoundTopics:
        """Look at every name once; keep the first `limit`."""
        text, found, total = asked.text.lower(), 0, 0
        best: list[Topic] = []
        busy = self._busiest.busy
        # By topic; of the busiest they are known without a look at the disk.
        ages = {each.name: each.oldest_ms for each in busy.values()}
        # The ledger has forgotten those that were drained; they stay for an hour all the same.
        drained = {name: each.topic for name, each in busy.items() if name not in self._ledger.topics}
        present = list(drained.values())
        names = self._ledger.topic_names.page("", "", _RUN)
        while present or names:
            present += [topic for name in names if name not in drained and (topic := self._present(name)) is not None]
            matching = [topic for topic in present if text in topic.name.lower()]
            total, found = total + len(present), found + len(matching)
            if asked.by == "oldest_s" and found <= AGES_MAX:
                await self._read_ages(matching, ages)
            best = self._first(asked, [*best, *matching], ages)
            await asyncio.sleep(0)
            present, names = [], self._ledger.topic_names.page(names[-1], "", _RUN) if names else []
        await self._read_ages(best, ages)
        aged = asked.by != "oldest_s" or found <= AGES_MAX
        return FoundTopics([self._row(topic, ages) for topic in best], found, total, aged)

    def _present(self, name: str) -> Topic | None:
        """Return a topic that holds something or was set up, or was busy within the hour."""
        topic = self._ledger.topics.get(name)
        if topic is None or not (topic.living or topic.dead or topic.configured or name in self._busiest.busy):
            return None
        return topic

    async def _read_ages(self, topics: Iterable[Topic], ages: dict[str, int]) -> None:
        lacking = [each for each in topics if each.living and not ages.get(each.name)]
        if lacking:
            read = await self._oldest([each.id for each in lacking])
            ages.update({each.name: oldest or 0 for each, oldest in zip(lacking, read, strict=True)})

    def _first(self, asked: FindTopics, topics: list[Topic], ages: dict[str, int]) -> list[Topic]:
        """Return the first `limit` in the order that was asked for; equals stand by name."""
        if asked.by == "topic":
            take = nsmallest if asked.down else nlargest
            return take(asked.limit, topics, key=lambda topic: topic.name)
        ordered = nlargest if asked.down else nsmallest
        return ordered(asked.limit, topics, key=lambda topic: self._figure(asked.by, topic, ages))

    def _figure(self, by: TopicFigure, topic: Topic, ages: dict[str, int]) -> float:
        row = self._row(topic, ages)
        value = row.in_ if by == "in" else getattr(row, by)
        return -1.0 if value is None else float(value)

    def _row(self, topic: Topic, ages: dict[str, int]) -> TopicFound:
        busy, oldest = self._busiest.busy.get(topic.name), ages.get(topic.name, 0) if topic.living else 0
        age_s = max(0.0, (self._wall_ms() - oldest) / 1000) if oldest else 0.0
        return TopicFound(
            topic=topic.name,
            ready=max(0, topic.living - topic.inflight - topic.delayed),
            inflight=topic.inflight,
            delayed=topic.delayed,
            dead=topic.dead,
            bytes=topic.bytes,
            receivers=len(topic.waiters),
            oldest_s=round(age_s, 1),
            in_=None if busy is None else round(busy.in_rate, 2),
            out=None if busy is None else round(busy.out_rate, 2),
        )
