"""Nobody waits beside a message, and nobody is told that there is none while there is one.

At every step of every race.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox import Ack, AckBatch, Nack, Recv, Send, SendBatch
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Busy, PenstockError
from penstock.services.mailbox import disk_waits
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions
from penstock.services.mailbox.engines.engine import EngineFailed
from penstock.services.mailbox.ids import slot_of
from penstock.services.mailbox.shards.topics import READY
from penstock.services.mailbox.stream import StreamCredit
from tests.services.mailbox.invariants import check_all, check_ram, settled
from tests.services.mailbox.lagging import Steps, at_every_step, lagging, until
from tests.services.mailbox.worlds import RequestMeta, answer_of, make_engine, make_room, running

SHARDS = 4
TOPIC = "orders"
# One key a shard.
KEYS = [next(f"k{n}" for n in range(1000) if slot_of(TOPIC, f"k{n}") % SHARDS == shard) for shard in range(SHARDS)]


def now() -> float:
    return asyncio.get_running_loop().time()


class Asking:
    """Receivers, and those of them that were told that there is nothing while there was something."""

    def __init__(self, mailbox) -> None:
        self._mailbox = mailbox
        self.misled: list[str] = []

    def recv(self, recv: Recv):
        """Begin to receive, in this very step."""
        promise = self._mailbox.dispatcher.recv(recv, RequestMeta()).promise
        answer = promise.resolve

        class Watched(type(promise)):
            __slots__ = ()

            def resolve(_self, result: object) -> None:
                if isinstance(result, m.Received) and not result.messages and not result.inflight_full:
                    self._note(recv.topic)
                answer(result)

        promise.__class__ = Watched
        return promise

    def _note(self, name: str) -> None:
        mailbox = self._mailbox
        topic = mailbox.state.ledger.topics.get(name)
        for index, lane in {} if topic is None else topic.lanes.items():
            messages = mailbox.state.shards[index].messages
            ready = [seq for seq in lane.ready if seq in messages and messages[seq].state == READY]
            self.misled += [f"empty although message {seq} of shard {index} is ready" for seq in ready]

    async def got(self, promise) -> list[bytes]:
        async with asyncio.timeout(60):
            received = await answer_of(promise)
        assert self.misled == []
        return [message.payload for message in received.messages]


async def with_lanes(mailbox, keys: list[str]) -> None:
    """Give these keys' shards a lane, and leave them empty."""
    for key in keys:
        await mailbox.api.send(Send(TOPIC, b"", key=key))
    for _ in keys:
        (got,) = (await mailbox.api.recv(Recv(TOPIC))).messages
        await mailbox.api.ack(Ack(got.msg_id, got.receipt))
    await settled(mailbox)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("shard", [None, *range(SHARDS)])
@pytest.mark.parametrize("wait_ms", [400, 0])
def test_receive_that_begins_at_any_step_of_a_send_sees_its_message(
    lanes: int, shard: int | None, wait_ms: int
) -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging() as mailbox:
            await with_lanes(mailbox, KEYS[:lanes])
            asking, receiving = Asking(mailbox), []
            steps.begin(lambda: receiving.append(asking.recv(Recv(TOPIC, wait_ms=wait_ms))))
            await mailbox.api.send(Send(TOPIC, b"x", key=None if shard is None else KEYS[shard]))
            steps.end()
            got = await asking.got(receiving[0])
            if not got and not wait_ms:
                # It came before the message was stored.
                got = await asking.got(asking.recv(Recv(TOPIC, wait_ms=400)))

            assert got == [b"x"]
            assert now() - steps.acted_at < 0.1
            await settled(mailbox)
            check_all(mailbox)

    assert at_every_step(scenario) > 5


@pytest.mark.parametrize("wait_ms", [400, 0])
@pytest.mark.parametrize("end", ["lapse", "nack", "ack", "delay"])
def test_receive_that_begins_at_any_step_of_an_end_of_lease_sees_what_comes_back(end: str, wait_ms: int) -> None:
    """An ack lets the next of its key go, everything else brings the message itself back."""

    async def scenario(steps: Steps) -> None:
        async with lagging() as mailbox:
            await with_lanes(mailbox, KEYS)
            for payload in (b"1", b"2"):
                await mailbox.api.send(Send(TOPIC, payload, key=KEYS[1]))
            (held,) = (await mailbox.api.recv(Recv(TOPIC, visibility_ms=250))).messages
            asking, receiving = Asking(mailbox), []
            steps.begin(lambda: receiving.append(asking.recv(Recv(TOPIC, wait_ms=wait_ms))))
            await end_lease(mailbox, end, held)
            steps.end()
            got = await asking.got(receiving[0])
            if not got:
                got = await asking.got(asking.recv(Recv(TOPIC, wait_ms=400)))

            assert got == [b"2" if end == "ack" else b"1"]
            await settled(mailbox)
            check_all(mailbox)

    assert at_every_step(scenario) > 5


async def end_lease(mailbox, end: str, held) -> None:
    if end == "ack":
        await mailbox.api.ack(Ack(held.msg_id, held.receipt))
    elif end == "lapse":
        await asyncio.sleep(0.3)
    else:
        await mailbox.api.nack(Nack(held.msg_id, held.receipt, delay_ms=20 if end == "delay" else 0))


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("wait_ms", [400, 0])
@pytest.mark.parametrize("unread", [0, 1])
def test_receive_finds_what_lies_on_the_disk_whatever_is_stored_meanwhile(
    keyed: bool, wait_ms: int, unread: int
) -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(bounds={"window_messages": 4}) as mailbox:
            for number in range(6):
                await mailbox.api.send(Send(TOPIC, b"x", key=f"k{number}" if keyed else None))
            await mailbox.api.send(Send("other", b"x"))
            await settled(mailbox)
            mailbox.engine.failing_reads = unread
            asking, seen = Asking(mailbox), 0
            steps.begin(lambda: mailbox.dispatcher.send(Send(TOPIC, b"x", key="k9" if keyed else None), RequestMeta()))
            while seen < 7:
                try:
                    got = await asking.got(asking.recv(Recv(TOPIC, 2, visibility_ms=60_000, wait_ms=wait_ms)))
                except PenstockError:
                    continue
                seen += len(got)
                if not got:
                    steps.end()

            await settled(mailbox)
            check_all(mailbox)

    assert at_every_step(scenario) > 10


async def test_stream_is_served_when_an_undone_lease_makes_room_for_it() -> None:
    """Nothing is committed by an undone lease: no commit would tell those who wait for room."""
    async with lagging(20, bounds={"global_inflight": 1, "cache_bytes": 1}) as mailbox:
        for topic in ("a", "b"):
            await mailbox.api.send(Send(topic, b"payload"))
        leased = mailbox.dispatcher.recv(Recv("a", visibility_ms=60_000), RequestMeta())
        await until(lambda: leased.got)
        stream = mailbox.dispatcher.recv(Recv("b", wait_ms=5000), RequestMeta(), owner=StreamCredit(1))
        await until(lambda: mailbox.state.waiters.count)
        leased.promise.cancel()
        before = now()

        assert [message.topic for message in (await answer_of(stream.promise)).messages] == ["b"]
        assert now() - before < 0.1
        check_ram(mailbox)


async def test_receiver_that_would_not_wait_gets_what_the_scan_for_keys_finds_in_any_shard() -> None:
    """The shard that asked for the scan hears of its end first, and must not answer for the others."""
    async with lagging() as mailbox:
        asking = Asking(mailbox)
        await with_lanes(mailbox, KEYS)
        for _ in KEYS:
            # Each time another shard is the last one that is asked, and asks for the scan.
            await mailbox.api.send(Send(TOPIC, b"x", key=KEYS[-1]))
            make_room(mailbox.state.shards, mailbox.state.ledger.bounds.window_messages)
            job = asking.recv(Recv(TOPIC, visibility_ms=60_000))

            assert await asking.got(job) == [b"x"]
            (message,) = job.result.messages
            await mailbox.api.ack(Ack(message.msg_id, message.receipt))


async def test_stream_that_waits_for_room_is_served_though_the_shards_were_rebound() -> None:
    async with lagging(bounds={"global_inflight": 1}) as mailbox:
        for topic in ("other", TOPIC):
            await mailbox.api.send(Send(topic, b"x"))
        (held,) = (await mailbox.api.recv(Recv("other", visibility_ms=60_000))).messages
        stream = mailbox.dispatcher.recv(Recv(TOPIC, wait_ms=5000), RequestMeta(), owner=StreamCredit(1))
        await asyncio.sleep(0.01)
        make_room(mailbox.state.shards, mailbox.state.ledger.bounds.window_messages)
        mailbox.shards.set(2)
        await asyncio.sleep(0.1)
        await mailbox.api.ack(Ack(held.msg_id, held.receipt))
        before = now()

        assert len((await answer_of(stream.promise)).messages) == 1
        assert now() - before < 0.1


@pytest.mark.parametrize("key", [None, "k"])
async def test_nothing_is_read_while_nothing_more_may_be_leased(
    key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAM may have no room for it: it would be read, given up and read again."""
    async with lagging(bounds={"global_inflight": 1, "window_messages": 1}) as mailbox:
        for topic in ("other", TOPIC, TOPIC, TOPIC):
            await mailbox.api.send(Send(topic, b"x", key=key))
        await mailbox.api.recv(Recv("other", visibility_ms=60_000, wait_ms=100))
        reads: list[str] = []
        monkeypatch.setattr(mailbox.engine, "_read", lambda: reads.append("read"))
        waiting = mailbox.dispatcher.recv(Recv(TOPIC, wait_ms=5000), RequestMeta(), owner=StreamCredit(1))
        await asyncio.sleep(1)

        assert not waiting.promise.done
        assert len(reads) <= 3


@pytest.mark.parametrize("delay_ms", [60, 90, 130])
async def test_nacked_message_comes_back_on_time_although_its_commit_takes_a_while(delay_ms: int) -> None:
    """The scanner hears of the delay when it is in force, not while it is on its way to the disk."""
    async with lagging(5) as mailbox:
        await mailbox.api.send(Send(TOPIC, b"x"))
        (got,) = (await mailbox.api.recv(Recv(TOPIC))).messages
        await mailbox.api.nack(Nack(got.msg_id, got.receipt, delay_ms=delay_ms))
        before = now()
        (again,) = (await mailbox.api.recv(Recv(TOPIC, wait_ms=5000))).messages

        assert again.attempt == 2
        assert -1e-6 <= now() - before - delay_ms / 1000 <= 0.05


async def test_reads_that_fail_are_tried_again_at_a_pace_and_those_who_would_not_wait_hear_of_it() -> None:
    async with lagging(bounds={"window_messages": 1}) as mailbox:
        for _ in range(3):
            await mailbox.api.send(Send(TOPIC, b"x"))
        await settled(mailbox)
        engine = mailbox.engine
        engine.failing_reads = 10_000
        # What is in RAM is given out; then somebody would have to look.
        while (
            lane := mailbox.state.shard_of(slot_of(TOPIC, None)).window.lane(mailbox.state.ledger.topics[TOPIC])
        ).ready:
            await mailbox.api.recv(Recv(TOPIC, visibility_ms=60_000))
        assert lane.backlog.more
        with pytest.raises(EngineFailed):
            await mailbox.api.recv(Recv(TOPIC))
        waiting = mailbox.dispatcher.recv(Recv(TOPIC, wait_ms=20_000), RequestMeta())
        await asyncio.sleep(1)
        tried = 10_000 - engine.failing_reads
        engine.failing_reads = 0
        before = now()

        assert 5 <= tried <= 40
        assert [message.payload for message in (await answer_of(waiting.promise)).messages] == [b"x"]
        assert now() - before < 0.1


async def test_more_reads_than_there_are_places_for_are_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_waits, "WAITS_MAX", 2)
    async with lagging(ready_shards=1) as mailbox:
        for _ in range(2):
            await mailbox.api.send_batch(SendBatch(tuple(Send(TOPIC, b"x", key=f"k{n}") for n in range(9))))
        mailbox.shards.set(2)
        await asyncio.sleep(0.1)
        # Nothing of a key is known but its first message: each ack asks for the next.
        for _ in range(2):
            got: list = []
            while len(got) < 9:
                with suppress(Busy):  # payloads are read in the same places
                    got += (await mailbox.api.recv(Recv(TOPIC, 9, wait_ms=100))).messages
            await mailbox.api.ack_batch(AckBatch(tuple(Ack(message.msg_id, message.receipt) for message in got)))
        await settled(mailbox)

        assert mailbox.state.ledger.messages == 0
        check_all(mailbox)


async def test_receive_that_waits_for_a_read_does_not_hold_up_a_drain() -> None:
    async with lagging(5, bounds={"window_messages": 1}) as mailbox:
        await mailbox.api.send(Send("other", b"x"))
        await mailbox.api.send(Send(TOPIC, b"x", delay_ms=60_000))
        lane = mailbox.state.shard_of(slot_of(TOPIC, None)).window.lane(mailbox.state.ledger.topics[TOPIC])
        lane.backlog.more = True
        late = mailbox.dispatcher.recv(Recv(TOPIC, wait_ms=20_000), RequestMeta())
        mailbox.stop_intake()
        before = now()

        assert (await answer_of(late.promise)).messages == ()
        assert now() - before < 0.1


async def test_places_that_come_free_go_round_among_the_topics_that_wait_for_one() -> None:
    async with lagging(0, bounds={"global_inflight": 1}) as mailbox:
        await mailbox.api.send(Send("first", b"x"))
        (held,) = (await mailbox.api.recv(Recv("first"))).messages
        jobs = []
        for topic in ("a", "b", "c"):
            for _ in range(2):
                await mailbox.api.send(Send(topic, b"x"))
                jobs.append(mailbox.dispatcher.recv(Recv(topic, wait_ms=5000), RequestMeta(), owner=StreamCredit(1)))
        await asyncio.sleep(0.01)
        order = []
        for _ in range(6):
            await mailbox.api.ack(Ack(held.msg_id, held.receipt))
            await until(lambda: any(job.promise.done for job in jobs))
            (done,) = [job for job in jobs if job.promise.done]
            jobs.remove(done)
            (held,) = (await answer_of(done.promise)).messages
            order.append(held.topic)

        assert order == ["a", "b", "c", "a", "b", "c"]


async def test_place_that_comes_free_is_offered_to_nobody_who_waits_for_nothing() -> None:
    async with lagging(0, bounds={"global_inflight": 1}) as mailbox:
        topics = mailbox.state.ledger.topics
        idle = [
            mailbox.dispatcher.recv(Recv(f"idle/{n}", wait_ms=5000), RequestMeta(), owner=StreamCredit(1))
            for n in range(9)
        ]
        for _ in range(3):
            await mailbox.api.send(Send("busy", b"x"))
        busy = [
            mailbox.dispatcher.recv(Recv("busy", wait_ms=5000), RequestMeta(), owner=StreamCredit(1)) for _ in range(3)
        ]
        await asyncio.sleep(1)
        asked = {name: [lane.used for lane in topics[name].lanes.values()] for name in topics if name != "busy"}
        for job in busy:
            (held,) = (await answer_of(job.promise)).messages
            await mailbox.api.ack(Ack(held.msg_id, held.receipt))
            await asyncio.sleep(0.01)

        assert len(asked) == len(idle)
        assert asked == {name: [lane.used for lane in topics[name].lanes.values()] for name in asked}


@pytest.mark.real_loop
async def test_nobody_is_misled_under_load_on_the_disk(tmp_path: Path) -> None:
    """Several shards, keyed and not, small windows, long polls that end: an empty answer is never wrong."""
    options = MailboxOptions(bounds=MailboxBounds(window_messages=40), ready_shards=SHARDS)
    rng = random.Random(7)
    async with running(make_engine("sqlite", tmp_path), options, SYSTEM) as mailbox:
        asking, acked = Asking(mailbox), 0

        async def consume() -> None:
            nonlocal acked
            while acked < 400:
                recv = Recv(TOPIC, rng.randint(1, 4), visibility_ms=60_000, wait_ms=rng.choice([0, 5, 50]))
                for message in (await answer_of(asking.recv(recv))).messages:
                    await mailbox.api.ack(Ack(message.msg_id, message.receipt))
                    acked += 1

        async def produce() -> None:
            for turn in range(100):
                key = rng.choice([None, f"k{turn % 17}"])
                await mailbox.api.send(Send(TOPIC, b"x", key=key, delay_ms=None if key else rng.choice([None, 3])))

        work = [produce() for _ in range(4)] + [consume() for _ in range(6)]
        tasks = [asyncio.get_running_loop().create_task(each) for each in work]
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()

        assert (asking.misled, acked) == ([], 400)
        await settled(mailbox)
        check_all(mailbox)
