"""Counts and places through everything that takes a message away or makes the shards anew: each was wrong once."""

from __future__ import annotations

import asyncio

import pytest

from penstock.contracts.mailbox import Ack, GetTopic, Nack, Purge, Recv, Send, SendBatch
from penstock.kernel.errors import Busy, PenstockError
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions, ShardRules
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.ids import read_msg_id
from penstock.services.mailbox.ledger import MailboxLedger, Now
from penstock.services.mailbox.shards import eviction
from penstock.services.mailbox.shards.topics import LEASED, Lane
from penstock.services.mailbox.shards.window import Window
from tests.services.mailbox.invariants import check_all, check_ram, settled
from tests.services.mailbox.lagging import Lagging, Steps, at_every_step, lagging, reopened, taken, until
from tests.services.mailbox.worlds import RequestMeta, answer_of, make_room, running

# --- topics that are forgotten


def test_idle_topic_is_not_forgotten_in_the_name_of_another() -> None:
    ledger = MailboxLedger(MailboxBounds())
    old = ledger.topic("orders")
    assert ledger.forget_idle(old)
    new = ledger.topic("orders")
    ledger.number(new)
    new.living = 1

    assert not ledger.forget_idle(old)
    assert ledger.topics["orders"] is new


async def test_receiver_that_gives_up_after_a_reopening_takes_no_living_topic_with_it() -> None:
    async with lagging() as mailbox:
        early = mailbox.dispatcher.recv(Recv("orders", 1, wait_ms=20_000), RequestMeta())
        late = mailbox.dispatcher.recv(Recv("orders", 1, wait_ms=20_000), RequestMeta())
        await asyncio.sleep(0.01)
        await reopened(mailbox)
        await mailbox.api.send(Send("orders", b"1"))
        (got,) = (await answer_of(early.promise)).messages
        await mailbox.api.send(Send("orders", b"2", delay_ms=50))
        late.promise.cancel()
        await asyncio.sleep(0.2)

        assert [message.payload for message in await taken(mailbox, "orders")] == [b"2"]
        assert (await mailbox.api.ack(Ack(got.msg_id, got.receipt))).ok
        await settled(mailbox)
        check_all(mailbox)


@pytest.mark.parametrize("end", ["purge", "ttl"])
async def test_topic_whose_messages_were_taken_away_is_forgotten_though_nobody_receives_from_it(end: str) -> None:
    rules = ShardRules(on_expiry=(("*", "drop"),))
    async with lagging(rules=rules) as mailbox:
        for key in (None, "a", "a"):
            await mailbox.api.send(Send("orders", b"x", key=key, ttl_ms=500 if end == "ttl" else None))
        if end == "purge":
            assert (await mailbox.api.purge(Purge("orders"))).purged == 3
        await asyncio.sleep(3)

        assert mailbox.state.ledger.topics == {}
        check_all(mailbox)


async def test_topics_that_were_only_asked_for_are_forgotten_at_once() -> None:
    async with lagging() as mailbox:
        for number in range(50):
            await mailbox.api.recv(Recv(f"nothing{number}"))

        assert mailbox.state.ledger.topics == {}


async def test_topics_of_receivers_that_were_refused_are_forgotten_at_once() -> None:
    async with lagging(0, bounds={"waiters": 1}) as mailbox:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(mailbox.api.recv(Recv("waits", wait_ms=1000)))
            await asyncio.sleep(0.1)
            for number in range(10):
                with pytest.raises(Busy, match="Too many receivers"):
                    await mailbox.api.recv(Recv(f"asked/{number}", wait_ms=1000))
            known = list(mailbox.state.ledger.topics)

        assert known == ["waits"]


async def test_topics_of_receivers_whose_worker_is_full_are_forgotten_at_once() -> None:
    async with lagging(0, ready_shards=1, shard_capacity=8) as mailbox:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(_refused(mailbox, f"asked/{number}")) for number in range(100)]
            await asyncio.sleep(0)
            known = len(mailbox.state.ledger.topics)

        assert sum(task.result() for task in asked) > 80
        assert known <= 8


async def _refused(mailbox, topic: str) -> bool:
    try:
        await mailbox.api.recv(Recv(topic))
    except Busy:
        return True
    return False


async def test_topics_asked_for_while_nothing_more_may_be_leased_are_forgotten_at_once() -> None:
    async with lagging(0, bounds={"global_inflight": 1}) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        await mailbox.api.recv(Recv("orders"))
        full = [(await mailbox.api.recv(Recv(f"asked/{number}"))).inflight_full for number in range(10)]

        assert all(full)
        assert list(mailbox.state.ledger.topics) == ["orders"]


def test_send_and_receive_at_any_step_of_a_topics_forgetting_find_each_other() -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging() as mailbox:
            await mailbox.api.send(Send("orders", b"old"))
            (old,) = await taken(mailbox, "orders")
            receiving: list = []

            def begin() -> None:
                mailbox.dispatcher.send(Send("orders", b"new"), RequestMeta())
                receiving.append(mailbox.dispatcher.recv(Recv("orders", wait_ms=300), RequestMeta()))

            steps.begin(begin)
            await mailbox.api.ack(Ack(old.msg_id, old.receipt))
            # The retention comes by, and forgets the topic.
            await asyncio.sleep(0.6)
            steps.end()
            (got,) = (await answer_of(receiving[0].promise)).messages

            assert got.payload == b"new"
            await settled(mailbox)
            check_all(mailbox)

    assert at_every_step(scenario) > 10


# --- RAM is short


async def test_lease_of_an_earlier_life_that_ends_does_not_hide_what_was_never_read() -> None:
    async with lagging(bounds={"window_messages": 4}) as mailbox:
        for number in range(6):
            await mailbox.api.send(Send("orders", b"%d" % number))
        got = [
            message
            for _ in range(6)
            for message in (await mailbox.api.recv(Recv("orders", visibility_ms=500))).messages
        ]
        for message in got[:5]:
            await mailbox.api.nack(Nack(message.msg_id, message.receipt, delay_ms=0))
        await settled(mailbox)
        await reopened(mailbox)
        # The last one comes back before anything was read, and has to make room for others.
        await asyncio.sleep(2)
        make_room(mailbox.state.shards, 8)
        seen = {message.payload for _ in range(8) for message in await taken(mailbox, "orders", visibility_ms=60_000)}

        assert seen == {b"%d" % number for number in range(6)}


async def test_key_that_left_ram_and_came_back_is_leased_once() -> None:
    async with lagging(bounds={"window_messages": 40}) as mailbox:
        for number in range(5):
            await mailbox.api.send(Send("orders", b"x", key=f"k{number}"))
        for _ in range(3):
            make_room(mailbox.state.shards, 40)
            mailbox.state.shards[0].window.reads.want_keys(mailbox.state.ledger.topics["orders"])
            mailbox.dispatcher.wake_all()
            await settled(mailbox)
        got = await taken(mailbox, "orders")
        got += await taken(mailbox, "orders")

        assert sorted(message.key for message in got) == [f"k{number}" for number in range(5)]
        assert {message.attempt for message in got} == {1}
        check_all(mailbox)


async def test_lane_that_gave_up_some_of_its_messages_is_still_in_order() -> None:
    async with lagging(ready_shards=1) as mailbox:
        for _ in range(3):
            await mailbox.api.send(Send("orders", b"x"))
        first, *_ = (await mailbox.api.recv(Recv("orders", 3))).messages
        await mailbox.api.nack(Nack(first.msg_id, first.receipt, delay_ms=0))
        await mailbox.writer.flushed()
        for seq in (3, 2):
            # Leases that were undone stay in RAM when others leave, until the disk has heard of it.
            message = mailbox.state.shards[0].messages[seq]
            mailbox.dispatcher.give_back([(message, message.gen)])
        make_room(mailbox.state.shards, mailbox.state.ledger.bounds.window_messages)
        (lane,) = mailbox.state.ledger.topics["orders"].lanes.values()

        assert lane.ready == [2, 3]


@pytest.mark.parametrize("end", ["purge", "expire"])
async def test_follower_on_its_way_out_is_not_delivered_when_its_turn_comes(end: str) -> None:
    async with lagging(10) as mailbox:
        for payload in (b"1", b"2", b"3"):
            await mailbox.api.send(Send("orders", payload, key="k", ttl_ms=400 if payload == b"2" else None))
        (head,) = await taken(mailbox, "orders", visibility_ms=60_000)
        shard = next(shard for shard in mailbox.state.shards if shard.messages)
        acked = mailbox.dispatcher.settle(Ack(head.msg_id, head.receipt), read_msg_id(head.msg_id), RequestMeta())
        await until(lambda: mailbox.writer.busy)
        # The ack is being committed; what takes the next one away comes with the commit after it.
        ((row, state),) = mailbox.engine.reads.living(1, 1, 2, 1)
        if end == "purge":
            assert shard.purge(row, state, mailbox.state.now(), mailbox.writer.batch)
        else:
            shard.expire(
                row, state, Now(mailbox.state.now().mono, mailbox.state.now().wall + 500), mailbox.writer.batch
            )
        await answer_of(acked)
        got = await taken(mailbox, "orders")

        assert [message.payload for message in got] == [b"3"]
        await settled(mailbox)
        check_all(mailbox)


async def test_key_whose_follower_is_on_its_way_out_stays_in_ram() -> None:
    async with lagging() as mailbox:
        for payload in (b"1", b"2"):
            await mailbox.api.send(Send("orders", payload, key="k", ttl_ms=60_000))
        await settled(mailbox)
        ((row, state),) = mailbox.engine.reads.living(1, 1, 2, 1)
        shard = mailbox.state.shard_of(row.slot)
        shard.expire(row, state, Now(mailbox.state.now().mono, mailbox.state.now().wall + 60_001), mailbox.writer.batch)
        make_room(mailbox.state.shards, mailbox.state.ledger.bounds.window_messages)
        await settled(mailbox)

        check_all(mailbox)
        assert [message.payload for message in await taken(mailbox, "orders")] == [b"1"]


def test_next_of_a_key_is_found_by_a_scan_that_meets_its_first_on_the_way_out() -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(3, rules=ShardRules(on_expiry=(("*", "drop"),))) as mailbox:
            for payload in (b"1", b"2"):
                await mailbox.api.send(Send("orders", payload, key="k", ttl_ms=200 if payload == b"1" else None))
            # No line is in RAM any more.
            mailbox.shards.set(2)
            await asyncio.sleep(0.45)
            receiving: list = []
            steps.begin(lambda: receiving.append(mailbox.dispatcher.recv(Recv("orders", wait_ms=400), RequestMeta())))
            await asyncio.sleep(0.1)
            steps.end()
            got = (await answer_of(receiving[0].promise)).messages

            assert [message.payload for message in got] == [b"2"]
            await settled(mailbox)
            check_all(mailbox)

    assert at_every_step(scenario) > 5


@pytest.mark.parametrize("rebind", [False, True])
async def test_delays_that_had_no_room_in_ram_all_end_in_time(rebind: bool) -> None:
    async with lagging(bounds={"window_messages": 1}) as mailbox:
        await mailbox.api.send(Send("other", b"x"))
        for number in range(5):
            await mailbox.api.send(Send("orders", b"%d" % number, delay_ms=300 + 200 * number))
        if rebind:
            mailbox.shards.set(2)
            await asyncio.sleep(0.1)
            assert len(mailbox.state.shards) == 2
        loop = asyncio.get_running_loop()
        before, seen = loop.time(), []
        while loop.time() - before < 2:
            seen += await taken(mailbox, "orders", visibility_ms=60_000)

        assert [message.payload for message in seen] == [b"%d" % number for number in range(5)]


# --- purge


def test_purge_at_any_step_of_acks_and_nacks_counts_each_message_once() -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(2, bounds={"window_messages": 3}) as mailbox:
            await mailbox.api.send_batch(
                SendBatch(tuple(Send("orders", b"x", key=key, delay_ms=delay) for key, delay in MIXED))
            )
            held = await taken(mailbox, "orders", visibility_ms=60_000)
            purging: list = []
            steps.begin(lambda: purging.append(asyncio.get_running_loop().create_task(purge(mailbox))))
            for place, message in enumerate(held):
                try:
                    await settle(mailbox, place, message)
                except PenstockError:
                    continue
            steps.end()
            await purging[0]
            await settled(mailbox)

            assert mailbox.state.ledger.messages == 0
            check_all(mailbox)

    assert at_every_step(scenario) > 10


MIXED = [(None, None), ("a", None), ("a", None), ("b", None), (None, 300), (None, 300), (None, None)]


async def purge(mailbox) -> None:
    await mailbox.api.purge(Purge("orders"))


async def settle(mailbox, place: int, message) -> None:
    if place % 2:
        await mailbox.api.nack(Nack(message.msg_id, message.receipt, delay_ms=0))
    else:
        await mailbox.api.ack(Ack(message.msg_id, message.receipt))


async def test_message_that_is_acked_while_a_purge_reads_it_leaves_once() -> None:
    async with lagging() as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        (held,) = await taken(mailbox, "orders")
        mailbox.reader.thread = Lagging(1, seconds=0.05)
        purging = asyncio.get_running_loop().create_task(mailbox.api.purge(Purge("orders")))
        await asyncio.sleep(0.02)
        await mailbox.api.ack(Ack(held.msg_id, held.receipt))
        await purging
        await settled(mailbox)

        check_all(mailbox)


async def test_purge_of_delays_that_lie_on_the_disk_is_counted() -> None:
    async with lagging(bounds={"window_messages": 1}) as mailbox:
        await mailbox.api.send(Send("other", b"x"))
        for _ in range(3):
            await mailbox.api.send(Send("orders", b"x", delay_ms=5000))
        assert (await mailbox.api.topic(GetTopic("orders"))).delayed == 3
        await mailbox.api.purge(Purge("orders"))
        await settled(mailbox)

        assert mailbox.state.ledger.topics["orders"].delayed == 0
        check_all(mailbox)


# --- receivers that go


def test_receiver_that_goes_at_any_step_leaves_nothing_leased_and_no_attempt_counted() -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(2, bounds={"cache_bytes": 1}) as mailbox:
            for number in range(6):
                await mailbox.api.send(Send("orders", b"payload", key=f"k{number}"))
            await settled(mailbox)
            task = asyncio.get_running_loop().create_task(mailbox.api.recv(Recv("orders", 6, visibility_ms=60_000)))
            steps.begin(task.cancel)
            await asyncio.wait({task})
            if task.cancelled():
                await asyncio.sleep(0.05)
                assert mailbox.state.ledger.inflight == 0
                got = await taken(mailbox, "orders") + await taken(mailbox, "orders")
                assert sorted(message.key for message in got) == [f"k{number}" for number in range(6)]
                assert {message.attempt for message in got} == {1}
            steps.end()
            await settled(mailbox)
            check_all(mailbox)

    assert at_every_step(scenario) > 10


async def test_receiver_that_goes_between_two_shards_gives_back_what_it_has() -> None:
    async with lagging() as mailbox:
        for number in range(6):
            await mailbox.api.send(Send("orders", b"payload", key=f"k{number}"))
        job = mailbox.dispatcher.recv(Recv("orders", 6, visibility_ms=60_000), RequestMeta())
        await until(lambda: job.got)
        assert not job.promise.done
        job.promise.cancel()
        await asyncio.sleep(0.01)

        assert [m for s in mailbox.state.shards for m in s.messages.values() if m.state == LEASED] == []
        check_ram(mailbox)


async def test_room_is_made_by_comparing_few_lanes_and_evicting_few(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Lane] = []
    last_used = eviction._last_used

    def noted(each: tuple[Window, Lane]) -> float:
        compared.append(each[1])
        return last_used(each)

    monkeypatch.setattr(eviction, "_last_used", noted)
    options = MailboxOptions(bounds=MailboxBounds(window_messages=4000))
    async with running(MemoryEngine(bytes(32)), options) as mailbox:
        for first in range(0, 4000, 250):
            names = (f"topic-{number}" for number in range(first, first + 250))
            await mailbox.api.send_batch(SendBatch(tuple(Send(name, b"x") for name in names)))
        assert mailbox.state.ledger.resident == 4000
        gone = make_room(mailbox.state.shards, 8)

        assert 8 <= gone <= 8 + 512
        assert len(compared) <= len(mailbox.state.shards) * 256
        # The last that came is still here.
        assert any(lane.ready for lane in mailbox.state.ledger.topics["topic-3999"].lanes.values())
