"""What the short ways of the hot path must not change: order, bounds, leases on the disk, and what an answer says."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Busy, Conflict
from penstock.net.promise import Promise
from penstock.services.mailbox import bodies
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.codec import JSON, VALUES
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.jobs import BatchPromise
from tests.services.mailbox.worlds import answer_of, mailbox_options, mailbox_world, running


class Noting(MemoryEngine):
    """An engine that remembers which states it was given, and when."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self.states: dict[int, float] = {}
        self.taken_away: set[int] = set()

    def commit(self, batch: Batch) -> None:
        now = asyncio.get_running_loop().time()
        for seq, state in batch.states.items():
            if state is None:
                self.taken_away.add(seq)
            else:
                self.states.setdefault(seq, now)
        super().commit(batch)


async def send(service, topic: str = "t", **more: object) -> m.Sent:
    return await service.api.send(m.Send(topic, b"hi", **more))


async def recv(service, topic: str = "t", count: int = 1) -> tuple[m.Envelope, ...]:
    return (await service.api.recv(m.Recv(topic, count))).messages


# --- leases that ride


async def test_a_lease_that_is_acked_at_once_is_never_written_even_while_others_commit() -> None:
    engine = Noting()
    async with running(engine, mailbox_options({})) as service:
        await send(service)
        (got,) = await recv(service)
        await send(service, "other")
        await asyncio.sleep(0.003)
        await send(service, "other")
        await service.api.ack(m.Ack(got.msg_id, got.receipt))
        await service.writer.flushed()

        assert engine.states == {}
        assert engine.taken_away == set()


@pytest.mark.parametrize("pause_s", [0.0005, 0.003, 1.0])
async def test_a_lease_is_written_within_ten_milliseconds_however_busy_the_writer_is(pause_s: float) -> None:
    engine = Noting()
    async with running(engine, mailbox_options({})) as service:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await send(service)
        leased_at = {}
        for seq in (1, 2, 3):
            assert len(await recv(service)) == 1
            leased_at[seq] = loop.time()
            await asyncio.sleep(0.004)
        end = loop.time() + 0.02
        while loop.time() < end:
            await send(service, "other")
            await asyncio.sleep(pause_s)

        assert set(engine.states) == {1, 2, 3}
        assert all(engine.states[seq] - leased_at[seq] <= 0.0101 for seq in leased_at)


async def test_a_written_lease_is_taken_away_with_its_message() -> None:
    engine = Noting()
    async with running(engine, mailbox_options({})) as service:
        await send(service)
        (got,) = await recv(service)
        await asyncio.sleep(0.02)
        await service.api.ack(m.Ack(got.msg_id, got.receipt))

        assert set(engine.states) == engine.taken_away == {1}


async def test_looking_sees_a_lease_that_is_still_to_be_written() -> None:
    async with mailbox_world("sqlite") as world:
        await world.api.send(m.Send("t", b"hi"))
        await world.api.recv(m.Recv("t"))
        seen = await world.api.peek(m.Peek("t", "inflight"))

        assert [peeked.attempt for peeked in seen.messages] == [1]


async def test_a_delayed_message_that_is_leased_late_does_not_hold_back_older_leases() -> None:
    engine = Noting()
    async with running(engine, mailbox_options({})) as service:
        loop = asyncio.get_running_loop()
        await send(service, "delayed", delay_ms=1)
        await send(service)
        for _ in range(400):  # until its delay is over, which is still to be written then
            if service.state.ledger.riders:
                break
            await asyncio.sleep(0.0005)
        assert service.state.ledger.riders
        await asyncio.sleep(0.001)
        assert len(await recv(service)) == 1
        leased_at = loop.time()
        await asyncio.sleep(0.002)
        assert len(await recv(service, "delayed")) == 1
        await asyncio.sleep(0.03)

        assert engine.states[2] - leased_at <= 0.0101


async def test_a_short_delay_is_over_in_time_although_the_scanner_planned_to_sleep_longer() -> None:
    async with mailbox_world("memory") as world:
        await asyncio.sleep(0.02)
        await world.api.send(m.Send("t", b"hi", delay_ms=20))
        await asyncio.sleep(0.019)
        early = (await world.api.recv(m.Recv("t"))).messages
        await asyncio.sleep(0.051)

        assert early == ()
        assert len((await world.api.recv(m.Recv("t"))).messages) == 1


# --- batches


async def test_a_batch_keeps_its_order_when_plain_and_special_messages_alternate() -> None:
    kinds = [{}, {"idem_key": "a"}, {}, {}, {"ttl_ms": 60_000}, {"idem_key": "b"}, {"attrs": {"a": "b"}}, {}]
    async with mailbox_world("sqlite") as world:
        sends = tuple(m.Send("t", b"%d" % number, **kind) for number, kind in enumerate(kinds))
        sent = (await world.api.send_batch(m.SendBatch(sends))).results
        got = (await world.api.recv(m.Recv("t", 256))).messages

        assert [each.payload for each in got] == [send.payload for send in sends]
        assert [each.msg_id for each in got] == [result.msg_id for result in sent]


async def test_every_result_of_a_batch_is_in_its_place_over_topics_and_keys() -> None:
    async with mailbox_world("memory") as world:
        places = [("a", None), ("b", None), ("a", None), ("b", "k"), ("a", "k"), ("b", None), ("c", None), ("a", None)]
        sends = tuple(m.Send(topic, b"%d" % n, key=key) for n, (topic, key) in enumerate(places))
        sent = (await world.api.send_batch(m.SendBatch(sends))).results
        names = {}
        for topic in ("a", "b", "c"):
            for each in (await world.api.recv(m.Recv(topic, 256))).messages:
                names[each.payload] = each.msg_id

        assert [result.msg_id for result in sent] == [names[send.payload] for send in sends]


async def test_a_batch_beyond_the_backlog_refuses_only_what_does_not_fit() -> None:
    async with mailbox_world("memory", backlog_messages_max=5) as world:
        sends = tuple(m.Send("t", b"hi") for _ in range(8))
        results = (await world.api.send_batch(m.SendBatch(sends))).results

        assert [result.code == "busy" for result in results] == [False] * 5 + [True] * 3
        assert len((await world.api.recv(m.Recv("t", 256))).messages) == 5


async def test_a_batch_larger_than_the_window_is_delivered_whole() -> None:
    async with mailbox_world("sqlite") as world:
        sends = tuple(m.Send("t", b"%d" % number) for number in range(256))
        for _ in range(20):
            await world.api.send_batch(m.SendBatch(sends))
        got = 0
        while messages := (await world.api.recv(m.Recv("t", 256))).messages:
            got += len(messages)
            await world.api.ack_batch(m.AckBatch(tuple(m.Ack(each.msg_id, each.receipt) for each in messages)))

        assert got == 20 * 256


async def test_acks_of_a_batch_are_each_answered_in_their_place() -> None:
    async with mailbox_world("sqlite") as world:
        await world.api.send_batch(m.SendBatch(tuple(m.Send("t", b"hi") for _ in range(3))))
        one, two, three = (m.Ack(each.msg_id, each.receipt) for each in (await world.api.recv(m.Recv("t", 3))).messages)
        crossed = m.Ack(two.msg_id, three.receipt)
        results = (await world.api.ack_batch(m.AckBatch((one, crossed, m.Ack("no-such-id", "r"), three, one)))).results

        assert [result.ok for result in results] == [True, msgspec.UNSET, msgspec.UNSET, True, True]
        assert [results[1].reason, results[2].code] == ["stale_receipt", "not_found"]
        assert (await world.api.ack(two)).ok


async def test_an_empty_batch_is_answered_at_once() -> None:
    async with mailbox_world("memory") as world:
        assert (await world.api.send_batch(m.SendBatch(()))).results == ()
        assert (await world.api.ack_batch(m.AckBatch(()))).results == ()


# --- how answers are written


REFUSAL = Conflict('A "quoted" detail.', reason="stale_receipt")
SETTLED = (m.Acked(), m.Nacked(2, 300, dead_lettered=False), m.Extended("r", 5))


@pytest.mark.parametrize("duplicate", [True, False])
def test_a_sent_answer_is_written_as_the_contract_says(duplicate: bool) -> None:
    sent = ("018bcfe5-6800-7000-8000-00000a1b2c3d", duplicate, 3)

    assert msgspec.json.decode(JSON.sent(*sent), type=m.Sent) == VALUES.sent(*sent)
    assert msgspec.json.decode(JSON.sent_item(*sent), type=m.SendResult) == VALUES.sent_item(*sent)


@pytest.mark.parametrize("value", SETTLED)
def test_a_settled_answer_is_written_as_the_contract_says(value: m.Acked | m.Nacked | m.Extended) -> None:
    assert msgspec.json.decode(JSON.settled(value), type=type(value)) == VALUES.settled(value)
    assert msgspec.json.decode(JSON.settled_item(value), type=m.SettleResult) == VALUES.settled_item(value)


def test_refusals_and_whole_batches_are_written_as_the_contract_says() -> None:
    sent = [JSON.refused_send(REFUSAL), JSON.sent_item("id", False, 0)]
    settled = [JSON.refused_settle(REFUSAL), JSON.settled_item(m.Acked())]

    assert msgspec.json.decode(JSON.many(sent), type=m.SentBatch).results == (
        VALUES.refused_send(REFUSAL),
        VALUES.sent_item("id", False, 0),
    )
    assert msgspec.json.decode(JSON.many(settled), type=m.SettledBatch).results == (
        VALUES.refused_settle(REFUSAL),
        VALUES.settled_item(m.Acked()),
    )


@pytest.mark.parametrize("full", [True, False])
def test_a_received_answer_is_written_without_the_flag_that_is_a_header(full: bool) -> None:
    written = JSON.received(m.Received((), inflight_full=full))

    assert msgspec.json.decode(getattr(written, "body", written), type=bodies.ReceivedOut, strict=True).messages == ()
    assert bool(getattr(written, "headers", ())) is full


# --- promises


async def test_whoever_stops_waiting_withdraws_the_work() -> None:
    promise = Promise()
    waiting = asyncio.ensure_future(answer_of(promise))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert promise.done


async def test_an_error_that_a_promise_holds_is_raised() -> None:
    promise = Promise()
    promise.resolve(Busy("full"))

    with pytest.raises(Busy):
        await answer_of(promise)


async def test_a_batch_that_failed_as_a_whole_stays_so_whatever_comes_later() -> None:
    bulk = BatchPromise(2, VALUES)
    bulk.put(0, "stored")
    bulk.resolve(Busy("lost"))
    bulk.put(1, "late")

    with pytest.raises(Busy):
        await answer_of(bulk)
