"""The filter and the order of the Topics view reach every topic, however many there are."""

from __future__ import annotations

import pytest

from penstock.node import topic_search
from penstock.node.topic_search import FindTopics, TopicSearch
from penstock.services.mailbox.ledger import MailboxBounds, MailboxLedger
from penstock.services.mailbox.shards.busiest import TOPICS_MAX, BusiestTopics

NOW_MS = 1_000_000


class Disk:
    """Knows when the oldest message of each topic was sent, and who asked."""

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}
        self.asked: list[int] = []

    async def oldest(self, topics: list[int]) -> list[int | None]:
        self.asked += topics
        return [self.sent.get(topic) for topic in topics]


def filled(count: int) -> tuple[MailboxLedger, Disk, TopicSearch]:
    """Make topics t/00000..., each with as many messages as its number says, sent so many seconds ago."""
    ledger, disk = MailboxLedger(MailboxBounds()), Disk()
    for number in range(count):
        topic = ledger.topic(f"t/{number:05}")
        topic.id, topic.living, topic.sends = number + 1, number + 1, number + 1
        disk.sent[topic.id] = NOW_MS - 1000 * (number + 1)
    busiest = BusiestTopics(ledger)
    busiest.step(0.0)
    return ledger, disk, TopicSearch(busiest, disk.oldest, lambda: NOW_MS)


async def test_any_part_of_a_name_finds_a_topic_whatever_its_letters() -> None:
    _, _, search = filled(2500)

    found = await search.find(FindTopics(text="T/0249"))
    assert [row.topic for row in found.topics] == [f"t/0249{n}" for n in range(9, -1, -1)]
    assert (found.found, found.total) == (10, 2500)


async def test_the_order_is_that_of_all_topics_and_only_the_first_are_told() -> None:
    _, disk, search = filled(2500)
    down = await search.find(FindTopics(by="ready"))
    up = await search.find(FindTopics(by="ready", down=False, limit=2))
    by_name = await search.find(FindTopics(by="topic", limit=1))
    by_name_up = await search.find(FindTopics(by="topic", down=False, limit=1))

    assert [row.ready for row in down.topics] == list(range(2500, 2500 - TOPICS_MAX, -1))
    assert (down.found, down.total) == (2500, 2500)
    assert [row.ready for row in up.topics] == [1, 2]
    assert ([each.topic for each in by_name.topics], [each.topic for each in by_name_up.topics]) == (
        ["t/00000"],
        ["t/02499"],
    )
    # Ages are read of what is shown, and of nothing else.
    assert len(disk.asked) <= TOPICS_MAX + 4


async def test_ages_are_read_of_all_that_match_when_the_order_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, search = filled(1200)
    oldest = await search.find(FindTopics(by="oldest_s", limit=2))
    monkeypatch.setattr(topic_search, "AGES_MAX", 100)
    many = await search.find(FindTopics(by="oldest_s", limit=2))

    assert ([row.oldest_s for row in oldest.topics], oldest.aged) == ([1200.0, 1199.0], True)
    assert not many.aged


async def test_a_rate_that_nobody_measures_is_not_told() -> None:
    ledger, _, search = filled(0)
    ledger.topic("quiet").configured = True
    found = await search.find(FindTopics())
    by_rate = await search.find(FindTopics(by="in"))

    assert [(row.topic, row.in_, row.out) for row in found.topics] == [("quiet", None, None)]
    assert by_rate.found == 1


async def test_a_topic_that_holds_nothing_and_was_never_set_up_is_no_topic() -> None:
    ledger, _, search = filled(3)
    ledger.topic("asked/for")

    assert (await search.find(FindTopics())).total == 3


async def test_a_drained_topic_is_found_for_as_long_as_it_is_followed() -> None:
    ledger, _, search = filled(3)
    ledger.topics["t/00001"].living = 0
    assert ledger.forget_idle(ledger.topics["t/00001"])
    found = await search.find(FindTopics(text="00001"))
    in_order = await search.find(FindTopics(by="topic"))

    assert [(row.topic, row.ready, row.oldest_s) for row in found.topics] == [("t/00001", 0, 0.0)]
    assert (found.found, found.total) == (1, 3)
    assert [row.topic for row in in_order.topics] == ["t/00000", "t/00001", "t/00002"]
