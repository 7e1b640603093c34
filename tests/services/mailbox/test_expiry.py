"""Messages that expire together are ended as fast as they came, while others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.contracts.mailbox import Ack, Recv, Send, SendBatch
from penstock.services.mailbox.config import MailboxOptions, ShardRules
from penstock.services.mailbox.engines.engine import Loaded
from penstock.services.mailbox.engines.memory import MemoryEngine
from tests.services.mailbox.lagging import Lagging
from tests.services.mailbox.worlds import running

BATCHES = 24
TTL_MS = 10_000


@pytest.mark.parametrize("verdict", ["dlq", "drop"])
async def test_six_thousand_messages_that_expire_at_once_are_ended_within_one_tick(verdict: str) -> None:
    options = MailboxOptions(rules=ShardRules(on_expiry=(("orders", verdict),)))
    async with running(MemoryEngine(bytes(32)), options) as mailbox:
        batch = SendBatch(tuple(Send("orders", b"x", ttl_ms=TTL_MS) for _ in range(256)))
        for _ in range(BATCHES):
            await mailbox.api.send_batch(batch)
        topic = mailbox.state.ledger.topics["orders"]
        await asyncio.sleep(TTL_MS / 1000 - 1)
        assert (topic.living, topic.dead) == (256 * BATCHES, 0)
        await asyncio.sleep(1.6)

        assert (topic.living, topic.dead) == (0, 256 * BATCHES if verdict == "dlq" else 0)
        assert mailbox.state.ledger.dropped == (0 if verdict == "dlq" else 256 * BATCHES)


async def test_others_are_served_while_messages_expire() -> None:
    async with running(MemoryEngine(bytes(32)), MailboxOptions()) as mailbox:
        mailbox.writer.thread = Lagging(1, seconds=0.001)
        batch = SendBatch(tuple(Send("orders", b"x", ttl_ms=100) for _ in range(256)))
        all_of_them, served = 256 * BATCHES, 0
        for _ in range(BATCHES):
            await mailbox.api.send_batch(batch)
        topic = mailbox.state.ledger.topics["orders"]
        while topic.living:
            await mailbox.api.send(Send("other", b"y"))
            (got,) = (await mailbox.api.recv(Recv("other"))).messages
            assert (await mailbox.api.ack(Ack(got.msg_id, got.receipt))).ok
            served += topic.living < all_of_them
            await asyncio.sleep(0.001)

        # A round of three takes a few commits, and no commit ends more than a few hundred messages.
        assert served > 3


class Counting(MemoryEngine):
    """Counts how often it is asked for messages that have expired, and to forget receipts."""

    asked = trimmed = 0

    def expired(self, wall_ms: int, limit: int) -> list[Loaded]:
        self.asked += 1
        return super().expired(wall_ms, limit)

    def trim(self, acked_before: int, acked_max: int, claims_floors: Sequence[int]) -> bool:
        self.trimmed += 1
        return super().trim(acked_before, acked_max, claims_floors)


async def test_an_empty_mailbox_is_left_alone_and_a_message_is_looked_after_again() -> None:
    engine = Counting(bytes(32))
    async with running(engine, MailboxOptions()) as mailbox:
        await asyncio.sleep(30)
        quiet = (engine.asked, engine.trimmed)
        await mailbox.api.send(Send("orders", b"x", ttl_ms=1000))
        await asyncio.sleep(3)
        topic = mailbox.state.ledger.topics["orders"]

        assert quiet[0] == 0
        assert quiet[1] <= 30 / 5 + 1
        assert engine.asked >= 1
        assert (topic.living, topic.dead) == (0, 1)
