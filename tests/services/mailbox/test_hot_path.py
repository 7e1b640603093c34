"""What the short ways of the hot path must not change: order, bounds, leases on the disk, and what an answer says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Busy, Conflict
from penstock.net.promise import Promise
from penstock.services.mailbox import bodies
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.codec import JSON, VALUES
from penstock.services.mailbox.engines.engine import DiskFull
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.jobs import BatchPromise
from penstock.wire.ids import address_of
from tests.services.mailbox.worlds import answer_of, mailbox_options, mailbox_world, make_engine, running


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


def keyed(*keys: str, payload: bytes = b"hi") -> m.SendBatch:
    """Make a batch whose messages have these idem_keys."""
    return m.SendBatch(tuple(m.Send("t", payload, idem_key=key) for key in keys))


async def together(*calls) -> list[m.SentBatch]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_an_idem_key_makes_one_message_however_its_repeats_come_in_batches(engine: str) -> None:
    async with mailbox_world(engine) as world:
        alone = await world.api.send(m.Send("t", b"hi", idem_key="b"))
        # Both are under way together; the second repeats keys whose commit is not done, and one of its own.
        one, two = await together(
            world.api.send_batch(keyed("a", "c")), world.api.send_batch(keyed("c", "d", "d", "b", "a"))
        )
        again = await world.api.send_batch(keyed("a", "b", "c", "d"))
        got = (await world.api.recv(m.Recv("t", 256))).messages

        names = dict(zip("abcd", [result.msg_id for result in again.results], strict=True))
        assert names["b"] == alone.msg_id
        assert [(each.msg_id, each.duplicate) for each in one.results] == [(names["a"], False), (names["c"], False)]
        assert [(each.msg_id, each.duplicate) for each in two.results] == [
            (names["c"], True), (names["d"], False), (names["d"], True), (names["b"], True), (names["a"], True)
        ]  # fmt: skip
        assert [result.duplicate for result in again.results] == [True] * 4
        assert sorted(each.msg_id for each in got) == sorted(names.values())
        assert {each.idem_key for each in got} == set("abcd")


async def test_a_batch_that_only_repeats_another_one_under_way_stores_nothing() -> None:
    async with mailbox_world("sqlite") as world:
        one, two = await together(*(world.api.send_batch(keyed("a", "b")) for _ in range(2)))

        assert [each.msg_id for each in two.results] == [each.msg_id for each in one.results]
        assert [each.duplicate for each in two.results] == [True, True]
        assert len((await world.api.recv(m.Recv("t", 256))).messages) == 2


async def test_a_message_without_a_key_claims_none_beside_one_with_a_key() -> None:
    async with running(Noting(), mailbox_options({})) as service:
        await service.api.send_batch(m.SendBatch((*keyed("a").messages, m.Send("t", b"hi"))))

        assert service.state.claims.live == 1


async def test_a_key_that_stands_for_another_message_refuses_its_item_alone() -> None:
    async with mailbox_world("sqlite") as world:
        await world.api.send_batch(keyed("a", "b"))
        sends = (*keyed("c").messages, *keyed("a", payload=b"other").messages, *keyed("d").messages)
        results = (await world.api.send_batch(m.SendBatch(sends))).results

        assert [result.code for result in results] == [msgspec.UNSET, "conflict", msgspec.UNSET]
        assert len((await world.api.recv(m.Recv("t", 256))).messages) == 4


async def test_a_payload_that_is_not_its_hash_is_refused_alone_in_a_batch() -> None:
    async with mailbox_world("memory") as world:
        good, bad = (m.Send("t", data, address_of(b"good"), key) for data, key in ((b"good", "a"), (b"evil", "b")))
        results = (await world.api.send_batch(m.SendBatch((good, bad, good)))).results

        assert [result.code for result in results] == [msgspec.UNSET, "integrity", msgspec.UNSET]
        assert len((await world.api.recv(m.Recv("t", 256))).messages) == 1


async def test_each_message_of_a_batch_has_the_address_of_its_own_payload() -> None:
    async with mailbox_world("memory") as world:
        await world.api.send_batch(m.SendBatch(tuple(m.Send("t", b"%d" % number) for number in range(4))))
        got = (await world.api.recv(m.Recv("t", 256))).messages

        assert [message.payload_hash for message in got] == [address_of(b"%d" % number) for number in range(4)]


async def test_keys_of_messages_that_found_no_room_are_free() -> None:
    async with mailbox_world("memory", backlog_messages_max=2) as world:
        refused = (await world.api.send_batch(keyed("a", "b", "c"))).results
        (one, _) = (await world.api.recv(m.Recv("t", 2))).messages
        await world.api.ack(m.Ack(one.msg_id, one.receipt))
        (last,) = (await world.api.send_batch(keyed("c"))).results

        assert [result.code for result in refused] == [msgspec.UNSET, msgspec.UNSET, "busy"]
        assert last.duplicate is False


class Full(MemoryEngine):
    """An engine without room for messages, as long as it is told so."""

    no_room = True

    def commit(self, batch: Batch) -> None:
        if self.no_room and batch.rows:
            raise DiskFull
        super().commit(batch)


async def test_keys_of_messages_that_a_full_disk_refused_are_free() -> None:
    engine = Full(bytes(32))
    async with running(engine, mailbox_options({})) as service:
        with pytest.raises(DiskFull):
            await service.api.send_batch(keyed("a", "b"))
        engine.no_room = False
        again = (await service.api.send_batch(keyed("a", "b"))).results

        assert [each.duplicate for each in again] == [False, False]


async def test_claims_of_a_batch_outlive_a_restart(tmp_path: Path) -> None:
    options = mailbox_options({})
    async with running(make_engine("sqlite", tmp_path), options) as service:
        first = (await service.api.send_batch(keyed("a", "b"))).results
    async with running(make_engine("sqlite", tmp_path), options) as service:
        again = (await service.api.send_batch(keyed("a", "b", "c"))).results

    assert [each.msg_id for each in again[:2]] == [each.msg_id for each in first]
    assert [each.duplicate for each in again] == [True, True, False]


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
