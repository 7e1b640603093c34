"""What the topics' page says of speed, and what becomes of messages that nobody fetches."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, GetDlq, GetTopic, Recv, Send
from penstock.services.mailbox.config import MailboxOptions, ShardRules
from tests.services.mailbox.worlds import make_engine, running

KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@pytest.mark.parametrize("seconds", [5, 9, 30, 150])
async def test_rates_are_messages_a_second_however_long_it_ran(seconds: int, tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions()) as mailbox:
        await asyncio.sleep(1)
        for number in range(seconds * 10):
            await mailbox.api.send(Send("orders", b"x"))
            if number % 2 == 0:
                (message,) = (await mailbox.api.recv(Recv("orders"))).messages
                await mailbox.api.ack(Ack(message.msg_id, message.receipt))
            await asyncio.sleep(0.1)
        stats = await mailbox.api.topic(GetTopic("orders"))

        assert stats.send_rate == pytest.approx(10, rel=0.15)
        assert stats.recv_rate == pytest.approx(5, rel=0.15)
        assert stats.ack_rate == pytest.approx(5, rel=0.15)


@KINDS
async def test_message_without_a_time_to_live_is_never_dropped_for_its_age(kind: str, tmp_path: Path) -> None:
    options = MailboxOptions(ready_retention_s=60.0, rules=ShardRules(on_expiry=(("logs/*", "drop"),)))
    async with running(make_engine(kind, tmp_path), options) as mailbox:
        await mailbox.api.send(Send("logs/web", b"kept"))
        await mailbox.api.send(Send("logs/web", b"kept too", ttl_ms=3_600_000))
        await mailbox.api.send(Send("logs/web", b"dropped", ttl_ms=30_000))
        await asyncio.sleep(65)
        entries = (await mailbox.api.dlq(GetDlq("logs/web"))).entries

        assert [entry.reason for entry in entries] == ["ttl", "ttl"]
        assert mailbox.inventory.metrics.value("expired_dropped_total") == 1
