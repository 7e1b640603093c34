"""Time ends many leases and delays at once: each in its time, however many there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, AckBatch, Recv, Send, SendBatch
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.shards.topics import READY
from tests.services.mailbox.worlds import make_engine, running

MANY = 6000
SPAN_MS = 1000
LATE_S = 0.050


async def send_all(mailbox, delay_ms: int | None = None) -> None:
    for _ in range(0, MANY, 250):
        await mailbox.api.send_batch(SendBatch((Send("orders", b"x", delay_ms=delay_ms),) * 250))


async def lease_all(mailbox) -> list:
    answers = [await mailbox.api.recv(Recv("orders", 250, visibility_ms=SPAN_MS)) for _ in range(0, MANY, 250)]
    return [message for answer in answers for message in answer.messages]


def count_ready(mailbox) -> int:
    return sum(message.state == READY for shard in mailbox.state.shards for message in shard.messages.values())


@pytest.mark.parametrize("what", ["leases", "delays"])
async def test_thousands_that_end_at_once_are_all_back_in_time(what: str, tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions()) as mailbox:
        await send_all(mailbox, SPAN_MS if what == "delays" else None)
        if what == "leases":
            await lease_all(mailbox)
        await asyncio.sleep(SPAN_MS / 1000 - 0.001)
        early = count_ready(mailbox)
        await asyncio.sleep(LATE_S + 0.001)

        assert early == 0
        assert count_ready(mailbox) == MANY


async def test_others_are_served_while_thousands_come_back(tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions(ready_shards=1)) as mailbox:
        await send_all(mailbox)
        await lease_all(mailbox)
        await asyncio.sleep(SPAN_MS / 1000)
        seen = set()
        for _ in range(100):
            await mailbox.api.send(Send("others", b"x"))
            seen.add(count_ready(mailbox))

        assert any(0 < ready < MANY for ready in seen)


async def test_what_is_acked_in_time_does_not_come_back_with_the_others(tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions()) as mailbox:
        await send_all(mailbox)
        leased = await lease_all(mailbox)
        await mailbox.api.ack_batch(AckBatch(tuple(Ack(each.msg_id, each.receipt) for each in leased[:200])))
        await asyncio.sleep(SPAN_MS / 1000 + LATE_S)

        assert count_ready(mailbox) == MANY - 200
