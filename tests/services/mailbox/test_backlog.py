"""A backlog lies on the disk: RAM holds a bounded window of it, and hides no topic and no key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, AckBatch, Nack, NackBatch, Recv, Send
from penstock.kernel.clock import SYSTEM
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from tests.services.mailbox.prefill import prefill
from tests.services.mailbox.worlds import make_room, running

BUDGET = 4096
SMALL = MailboxOptions(bounds=MailboxBounds(window_messages=BUDGET, global_inflight=1000))
MANY = 1_000_000


def big_engine(directory: Path) -> SqliteEngine:
    return SqliteEngine(directory, fsync=False, wal_bytes=16 << 20)


async def take(mailbox, topic: str, count: int) -> list[tuple[str | None, bytes]]:
    got = (await mailbox.api.recv(Recv(topic, count, wait_ms=2000))).messages
    await mailbox.api.ack_batch(AckBatch(tuple(Ack(m.msg_id, m.receipt) for m in got)))
    return [(m.key, m.payload) for m in got]


def resident(mailbox) -> int:
    """Count what is really there, not what the ledger says."""
    return sum(len(shard.messages) for shard in mailbox.state.shards)


async def test_many_topics_and_keys_share_one_budget_of_ram(tmp_path: Path) -> None:
    plain = ((f"t{n % 200}", None) for n in range(120_000))
    keyed = (("keyed", f"k{n % 20_000}") for n in range(80_000))
    engine = big_engine(tmp_path)
    assert prefill(engine, chain(plain, keyed)) == 200_000
    async with running(engine, SMALL) as mailbox:
        ledger, peak, keys = mailbox.state.ledger, 0, 0
        for _ in range(2):
            for number in range(200):
                assert len(await take(mailbox, f"t{number}", 3)) == 3
                peak = max(peak, resident(mailbox))
            for _ in range(40):
                keys += len(await take(mailbox, "keyed", 256))
                peak = max(peak, resident(mailbox))

        assert ledger.resident == resident(mailbox)
        assert peak <= BUDGET + ledger.bounds.global_inflight
        assert keys > 4000
        assert ledger.messages == 200_000 - 2 * 600 - keys


async def test_evicted_messages_come_back_in_order_and_none_is_lost(tmp_path: Path) -> None:
    engine = big_engine(tmp_path)
    names = [("a", None), ("b", None), ("c", "k1"), ("c", "k2"), ("d", "k1")]
    prefill(engine, (names[n % 5] for n in range(10_000)))
    seen: dict[tuple[str, str | None], list[int]] = {name: [] for name in names}
    async with running(engine, SMALL) as mailbox:
        for turn in range(100_000):
            for topic in "abcd":
                got = (await mailbox.api.recv(Recv(topic, 50, visibility_ms=600_000))).messages
                for message in got:
                    seen[topic, message.key].append(int(message.msg_id.replace("-", ""), 16))
                await mailbox.api.ack_batch(AckBatch(tuple(Ack(m.msg_id, m.receipt) for m in got)))
            if turn % 3 == 0:
                assert make_room(mailbox.state.shards, BUDGET) >= 0
            if sum(map(len, seen.values())) == 10_000:
                break

        assert {name: len(ids) for name, ids in seen.items()} == dict.fromkeys(names, 2000)
        assert all(ids == sorted(ids) for ids in seen.values())
        assert resident(mailbox) == mailbox.state.ledger.messages == 0


async def test_delayed_key_that_left_ram_comes_back_when_its_time_has_come(tmp_path: Path) -> None:
    engine = big_engine(tmp_path)
    async with running(engine, SMALL) as mailbox:
        for number in range(2):
            await mailbox.api.send(Send("orders", b"%d" % number, key="k"))
        (first,) = (await mailbox.api.recv(Recv("orders"))).messages
        await mailbox.api.nack(Nack(first.msg_id, first.receipt, delay_ms=5000))
        make_room(mailbox.state.shards, BUDGET)
        assert resident(mailbox) == 0
        await mailbox.api.send(Send("orders", b"2", key="k"))
        began = asyncio.get_running_loop().time()
        seen = [each for _ in range(8) for each in await take(mailbox, "orders", 1)]

        assert seen == [("k", b"0"), ("k", b"1"), ("k", b"2")]
        assert asyncio.get_running_loop().time() - began >= 4.9


def two_topics(messages: int) -> Iterator[tuple[str, str | None]]:
    """Put one message of its own topic, and one of its own key, behind so many others."""
    half = messages // 2
    return chain(repeat(("a", None), half), repeat(("keyed", "a"), half), [("b", None), ("keyed", "b")])


async def fastest(engine: SqliteEngine) -> dict[str, float]:
    """Start and receive three times; the best of them is what the mailbox costs, for the machine is shared.

    In time of this process, its threads and all.
    """
    options = MailboxOptions(bounds=MailboxBounds(backlog_messages=2_000_000))
    times: dict[str, list[float]] = {"restart": [], "b": [], "keyed": []}
    for _ in range(3):
        began = time.process_time()
        async with running(engine, options, clock=SYSTEM) as mailbox:
            times["restart"].append(time.process_time() - began)
            for topic, keys in (("b", [None]), ("keyed", ["a", "b"])):
                began = time.process_time()
                got = (await mailbox.api.recv(Recv(topic, len(keys), wait_ms=20_000))).messages
                times[topic].append(time.process_time() - began)
                assert [message.key for message in got] == keys
                await mailbox.api.nack_batch(NackBatch(tuple(Nack(m.msg_id, m.receipt, delay_ms=0) for m in got)))
    return {name: min(each) for name, each in times.items()}


@pytest.mark.real_loop
async def test_topic_and_key_behind_a_huge_backlog_arrive_within_10_ms(tmp_path: Path) -> None:
    """On a slow machine, within a few times what they take behind hardly any."""
    small, huge = big_engine(tmp_path / "small"), big_engine(tmp_path / "huge")
    prefill(small, two_topics(10))
    prefill(huge, two_topics(MANY))
    least, found = await fastest(small), await fastest(huge)

    assert found["b"] <= max(0.010, 4 * least["b"])
    assert found["keyed"] <= max(0.010, 4 * least["keyed"])
    assert found["restart"] < 5.0
