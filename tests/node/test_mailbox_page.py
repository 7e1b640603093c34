"""What the page says of the whole mailbox: no topic is too quiet for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, GetTopic, Nack, Recv, Send
from penstock.node.mailbox_page import OLD_S, MailboxPage
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.service import MailboxService
from penstock.services.mailbox.shards.busiest import LOOKED_AT, TOPICS_MAX
from tests.services.mailbox.worlds import make_engine, running

KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@asynccontextmanager
async def mailbox_page(kind: str, directory: Path) -> AsyncIterator[tuple[MailboxService, MailboxPage]]:
    async with running(make_engine(kind, directory), MailboxOptions()) as mailbox:
        yield mailbox, MailboxPage(mailbox, mailbox.inventory.metrics)


def second(page: MailboxPage) -> dict[str, float]:
    """Read the figures of one second."""
    return page.read(asyncio.get_running_loop().time())


async def send_twice_to(mailbox: MailboxService, count: int) -> None:
    for number in range(2 * count):
        await mailbox.api.send(Send(f"many/{number % count}", b"x"))


@KINDS
async def test_the_oldest_message_is_that_of_all_topics_and_not_of_the_busiest(kind: str, tmp_path: Path) -> None:
    async with mailbox_page(kind, tmp_path) as (mailbox, page):
        await mailbox.api.send(Send("forgotten", b"x"))
        second(page)
        await page.look()
        await asyncio.sleep(OLD_S)
        ages = []
        for _ in range(3):
            await send_twice_to(mailbox, TOPICS_MAX + 100)
            await asyncio.sleep(1)
            ages.append(second(page)["oldest_s"])
            await page.look()
        stats = await mailbox.api.topic(GetTopic("forgotten"))
        last = second(page)["oldest_s"]
        said = [concern.detail for concern in page.concerns()]

    assert "forgotten" not in page.topics.busy
    assert ages == sorted(ages)
    assert ages[0] >= OLD_S
    assert last == pytest.approx(stats.oldest_age_s, abs=0.01)
    assert said == ["forgotten has a message that has waited for 5 min, and nobody receives from it"]


@KINDS
async def test_the_oldest_message_is_another_once_it_is_acked_and_none_when_nothing_waits(
    kind: str, tmp_path: Path
) -> None:
    async with mailbox_page(kind, tmp_path) as (mailbox, page):
        for topic in ("first", "second"):
            await mailbox.api.send(Send(topic, b"x"))
            await asyncio.sleep(10)
        ages = []
        for topic in ("first", "second"):
            await page.look()
            ages.append(round(second(page)["oldest_s"]))
            [got] = (await mailbox.api.recv(Recv(topic))).messages
            await mailbox.api.ack(Ack(got.msg_id, got.receipt))
        empty = second(page)["oldest_s"]

    assert (ages, empty) == ([20, 10], 0.0)


async def test_the_topic_with_the_most_dead_letters_is_named_however_quiet_it_is(tmp_path: Path) -> None:
    async with mailbox_page("memory", tmp_path) as (mailbox, page):
        for topic, count in (("zz/quiet", 3), ("one", 1)):
            for _ in range(count):
                await mailbox.api.send(Send(topic, b"x"))
                [got] = (await mailbox.api.recv(Recv(topic))).messages
                await mailbox.api.nack(Nack(got.msg_id, got.receipt, final=True))
        for number in range(LOOKED_AT + 100):
            await mailbox.api.send(Send(f"many/{number}", b"x"))
        for _ in range(3):
            await send_twice_to(mailbox, TOPICS_MAX + 100)
            await asyncio.sleep(1)
            second(page)
        words = [concern.detail for concern in page.concerns()]

    assert "zz/quiet" not in page.topics.busy
    assert words == ["3 of the dead letters are in zz/quiet"]
