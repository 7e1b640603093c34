"""The engine failed and was opened again: whoever waited is answered, and every count is right."""

from __future__ import annotations

import asyncio

import pytest

from penstock.contracts.mailbox import Ack, Recv, Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.rows import KIND_LEASED
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.lagging import Lagging, Steps, at_every_step, lagging, reopened, taken, until
from tests.services.mailbox.worlds import RequestMeta, answer_of


async def test_receiver_that_waits_through_a_reopening_is_served_after_it() -> None:
    async with lagging() as mailbox:
        waiting = mailbox.dispatcher.recv(Recv("orders", wait_ms=20_000), RequestMeta())
        await asyncio.sleep(0.01)
        # It is stored all the same, and its sender never heard of it.
        mailbox.engine.failures.append("after")
        with pytest.raises(PenstockError):
            await mailbox.api.send(Send("orders", b"doubtful"))
        await mailbox.until_ready()
        before = asyncio.get_running_loop().time()

        assert [message.payload for message in (await answer_of(waiting.promise)).messages] == [b"doubtful"]
        assert asyncio.get_running_loop().time() - before < 0.1


async def test_what_is_handed_in_while_the_engine_is_shut_is_not_committed_by_its_next_life() -> None:
    async with lagging(3) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        (got,) = await taken(mailbox, "orders")
        await settled(mailbox)
        mailbox.engine.failures.append("before")
        doubtful = mailbox.dispatcher.send(Send("orders", b"doubtful"), RequestMeta())
        await until(lambda: not mailbox.state.ready)
        # A shard that is about to be made anew is told that a lease has ended, by somebody who was under way.
        message = mailbox.state.shard_of(0).messages.get(1) or next(
            m for s in mailbox.state.shards for m in s.messages.values()
        )
        mailbox.state.shard_of(message.slot).spoiled(message, message.gen, mailbox.state.now(), mailbox.writer.batch)
        await mailbox.until_ready()
        await settled(mailbox)

        check_all(mailbox)
        assert isinstance(doubtful.result, PenstockError)
        assert (await mailbox.api.ack(Ack(got.msg_id, got.receipt))).ok
        await settled(mailbox)
        check_all(mailbox)


async def test_reads_that_come_back_after_a_reopening_change_nothing() -> None:
    async with lagging(bounds={"window_messages": 2}) as mailbox:
        for number in range(8):
            await mailbox.api.send(Send("orders", b"x", key=f"k{number}" if number % 2 else None, ttl_ms=60_000))
        await settled(mailbox)
        mailbox.reader.thread = Lagging(1, seconds=3.0)
        # One read for the receiver, one for the keys, one for what has expired: all are still out when it is open
        # again.
        waiting = mailbox.dispatcher.recv(Recv("orders", 8, wait_ms=20_000), RequestMeta())
        await asyncio.sleep(0.6)
        await reopened(mailbox)
        mailbox.reader.thread = Lagging(1)
        await asyncio.sleep(5)
        await settled(mailbox)

        check_all(mailbox)
        assert (await answer_of(waiting.promise)).messages


async def test_expired_message_that_was_read_before_a_reopening_is_buried_once() -> None:
    async with lagging() as mailbox:
        await mailbox.api.send(Send("orders", b"x", ttl_ms=100))
        mailbox.reader.thread = Lagging(1, seconds=3.0)
        # The retention has read it, and hears of it when it was buried by somebody else in the engine's next life.
        await asyncio.sleep(0.6)
        await reopened(mailbox)
        mailbox.reader.thread = Lagging(1)
        assert await taken(mailbox, "orders") == []
        assert mailbox.state.ledger.dead == 1
        await asyncio.sleep(5)
        await settled(mailbox)

        assert mailbox.state.ledger.dead == 1
        check_all(mailbox)


async def test_lease_that_is_undone_after_a_reopening_is_of_no_account() -> None:
    async with lagging(bounds={"cache_bytes": 1}) as mailbox:
        for _ in range(2):
            await mailbox.api.send(Send("orders", b"payload"))
        mailbox.reader.thread = Lagging(1, seconds=3.0)
        job = mailbox.dispatcher.recv(Recv("orders", 2, visibility_ms=60_000), RequestMeta())
        await asyncio.sleep(0.01)
        assert len(job.got) == 2
        await reopened(mailbox)
        job.promise.cancel()
        mailbox.reader.thread = Lagging(1)
        await asyncio.sleep(5)
        await settled(mailbox)

        check_all(mailbox)


async def test_stored_lease_that_is_undone_is_ended_on_the_disk_too() -> None:
    async with lagging(bounds={"cache_bytes": 1}) as mailbox:
        for _ in range(2):
            await mailbox.api.send(Send("orders", b"payload"))
        mailbox.reader.thread = Lagging(1, seconds=1.0)
        job = mailbox.dispatcher.recv(Recv("orders", 2, visibility_ms=60_000), RequestMeta())
        await asyncio.sleep(0.1)
        assert mailbox.engine._kind(1) == KIND_LEASED
        job.promise.cancel()
        mailbox.reader.thread = Lagging(1)
        await asyncio.sleep(2)
        await settled(mailbox)

        check_all(mailbox)
        assert [message.attempt for message in await taken(mailbox, "orders")] == [1, 1]


async def test_receiver_that_would_not_wait_hears_at_once_that_the_engine_failed() -> None:
    async with lagging(bounds={"window_messages": 1}) as mailbox:
        for _ in range(4):
            await mailbox.api.send(Send("orders", b"x"))
        await settled(mailbox)
        mailbox.reader.thread = Lagging(1, seconds=3.0)
        await mailbox.api.recv(Recv("orders"))
        asked = mailbox.dispatcher.recv(Recv("orders"), RequestMeta())
        await asyncio.sleep(0.01)
        assert not asked.promise.done
        mailbox.engine.failures.append("before")
        with pytest.raises(PenstockError):
            await mailbox.api.send(Send("elsewhere", b"doubtful"))
        await asyncio.sleep(0.01)
        told = asked.promise.result
        mailbox.reader.thread = Lagging(1)
        await asyncio.sleep(5)

        assert isinstance(told, PenstockError)


async def test_senders_that_wait_for_a_claim_are_answered_through_a_reopening() -> None:
    async with lagging() as mailbox:
        await mailbox.api.send(Send("orders", b"x", idem_key="i"))
        mailbox.reader.thread = Lagging(1, seconds=3.0)
        again = [mailbox.dispatcher.send(Send("orders", b"x", idem_key="i"), RequestMeta()) for _ in range(3)]
        await asyncio.sleep(0.01)
        await reopened(mailbox)
        mailbox.reader.thread = Lagging(1)
        await asyncio.sleep(5)

        assert [promise.done for promise in again] == [True] * 3
        await settled(mailbox)
        check_all(mailbox)


async def test_number_of_shards_that_changes_while_the_engine_is_shut_is_taken_up_later() -> None:
    async with lagging() as mailbox:
        mailbox.engine.failures.append("before")
        mailbox.dispatcher.send(Send("elsewhere", b"doubtful"), RequestMeta())
        await until(lambda: not mailbox.state.ready)
        mailbox.shards.set(2)
        await mailbox.until_ready()
        await asyncio.sleep(0.5)

        assert len(mailbox.state.shards) == 2


@pytest.mark.parametrize("wait_ms", [0, 300])
@pytest.mark.parametrize("failure", ["before", "after"])
def test_reopening_at_any_step_of_a_receive_answers_it_and_leaves_every_count_right(wait_ms: int, failure: str) -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(2, bounds={"window_messages": 3, "cache_bytes": 1}) as mailbox:
            for number in range(4):
                await mailbox.api.send(Send("orders", b"%d" % number, key="k" if number % 2 else None))
            await settled(mailbox)

            def fail() -> None:
                mailbox.engine.failures.append(failure)
                mailbox.dispatcher.send(Send("elsewhere", b"doubtful"), RequestMeta())

            steps.begin(fail)
            async with asyncio.timeout(20):
                for _ in range(3):
                    try:
                        await answer_of(
                            mailbox.dispatcher.recv(Recv("orders", 4, wait_ms=wait_ms), RequestMeta()).promise
                        )
                    except PenstockError:
                        await mailbox.until_ready()
            steps.end()
            await asyncio.sleep(0.01)
            await mailbox.until_ready()
            await settled(mailbox)
            check_all(mailbox)
            await asyncio.sleep(6)
            seen = [message.payload for _ in range(4) for message in await taken(mailbox, "orders")]

            assert sorted(seen) == [b"0", b"1", b"2"]

    assert at_every_step(scenario) > 5
