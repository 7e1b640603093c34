"""RAM holds a window, not the backlog; and no backlog hides another topic or another key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, GetTopic, Recv, Send, SendBatch
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions
from penstock.testing import until
from tests.services.mailbox.worlds import make_engine, make_room, running

MANY = 6000
OPTIONS = MailboxOptions(bounds=MailboxBounds(window_messages=2000))


async def fill(mailbox, topic: str, count: int, key: str | None = None) -> None:
    for start in range(0, count, 250):
        sends = tuple(Send(topic, b"%d" % (start + place), key=key) for place in range(min(250, count - start)))
        assert all(
            isinstance(result.msg_id, str) for result in (await mailbox.api.send_batch(SendBatch(sends))).results
        )


async def take_all(mailbox, topic: str) -> list[int]:
    seen = []
    while got := (await mailbox.api.recv(Recv(topic, 200, visibility_ms=600_000))).messages:
        seen += [int(message.payload) for message in got]
        await asyncio.wait([asyncio.ensure_future(mailbox.api.ack(Ack(m.msg_id, m.receipt))) for m in got])
    return seen


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
class TestWindows:
    async def test_backlog_stays_on_the_disk_and_comes_out_in_order(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), OPTIONS) as mailbox:
            await fill(mailbox, "orders", MANY)
            assert mailbox.state.ledger.resident <= 2000
            seen = await take_all(mailbox, "orders")

            assert seen == list(range(MANY))
            assert mailbox.state.ledger.resident == mailbox.state.ledger.messages == mailbox.state.ledger.bytes == 0

    async def test_topic_behind_a_large_backlog_is_delivered_at_once(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), OPTIONS) as mailbox:
            await fill(mailbox, "a", MANY)
            await mailbox.api.send(Send("b", b"7"))
            before = asyncio.get_running_loop().time()
            (got,) = (await mailbox.api.recv(Recv("b"))).messages

            assert got.payload == b"7"
            assert asyncio.get_running_loop().time() - before <= 0.010

    async def test_key_behind_a_large_backlog_of_another_key_is_delivered_at_once(
        self, kind: str, tmp_path: Path
    ) -> None:
        engine = make_engine(kind, tmp_path)
        async with running(engine, OPTIONS) as mailbox:
            await fill(mailbox, "orders", MANY, key="a")
            await mailbox.api.send(Send("orders", b"7", key="b"))
            got = (await mailbox.api.recv(Recv("orders", 10))).messages
            assert [(message.key, message.payload) for message in got] == [("a", b"0"), ("b", b"7")]
        # And so it is after a restart, when nothing is in RAM yet.
        async with running(engine, OPTIONS) as mailbox:
            for message in got:
                await mailbox.api.ack(Ack(message.msg_id, message.receipt))
            await mailbox.api.send(Send("orders", b"8", key="b"))
            after: dict[str | None, bytes] = {}

            async def both_came() -> bool:
                # A receive does not wait for a read that is under way in another shard.
                found = (await mailbox.api.recv(Recv("orders", 10))).messages
                after.update({message.key: message.payload for message in found})
                return len(after) == 2

            await until(both_came)

            assert after == {"a": b"1", "b": b"8"}

    async def test_delays_that_end_while_nobody_receives_stay_on_the_disk(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), OPTIONS) as mailbox:
            for start in range(0, MANY, 250):
                sends = tuple(Send("orders", b"%d" % (start + place), delay_ms=2000) for place in range(250))
                await mailbox.api.send_batch(SendBatch(sends))
            await asyncio.sleep(30)
            resident, stats = mailbox.state.ledger.resident, await mailbox.api.topic(GetTopic("orders"))
            seen = await take_all(mailbox, "orders")

            assert (stats.ready, stats.delayed) == (MANY, 0)
            assert resident <= 2000
            assert sorted(seen) == list(range(MANY))
            assert mailbox.state.ledger.resident == mailbox.state.ledger.messages == 0

    @pytest.mark.parametrize("written", [False, True])
    async def test_leases_that_were_undone_may_leave_ram(self, kind: str, written: bool, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), OPTIONS) as mailbox:
            await fill(mailbox, "orders", 250)
            await mailbox.api.recv(Recv("orders", 200, visibility_ms=600_000))
            if written:
                await mailbox.writer.flushed()
            leased = [(message, message.gen) for shard in mailbox.state.shards for message in shard.messages.values()]
            mailbox.dispatcher.give_back(leased)
            await mailbox.writer.flushed()
            make_room(mailbox.state.shards, 2000)
            resident = mailbox.state.ledger.resident

            assert resident == 0
            assert await take_all(mailbox, "orders") == list(range(250))

    async def test_one_key_keeps_its_order_through_a_backlog(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), OPTIONS) as mailbox:
            await fill(mailbox, "orders", 300, key="a")

            assert await take_all(mailbox, "orders") == list(range(300))
            with pytest.raises(Exception, match="no such topic"):
                await mailbox.api.topic(GetTopic("orders"))

    async def test_changing_the_number_of_shards_loses_nothing(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), OPTIONS) as mailbox:
            await fill(mailbox, "orders", 500)
            for number in range(20):
                await mailbox.api.send(Send("orders", b"%d" % (500 + number), key=f"k{number}"))
            held = (await mailbox.api.recv(Recv("orders", 10, visibility_ms=600_000))).messages
            mailbox.shards.set(3)
            await asyncio.sleep(1)
            assert len(mailbox.state.shards) == 3
            for message in held:
                assert (await mailbox.api.ack(Ack(message.msg_id, message.receipt))).ok
            seen = await take_all(mailbox, "orders")

            assert sorted([*seen, *(int(message.payload) for message in held)]) == list(range(520))
