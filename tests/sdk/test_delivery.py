"""A delivery's block: the lease is kept while it runs, and how it ends settles the message."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, Integrity, Timeout
from penstock.sdk.errors import LeaseLost, Reject
from tests.sdk.kit import (
    AWAY,
    GONE,
    TOPIC,
    World,
    started,
    world,
)


async def one(w: World, **said):
    """Take one delivery."""
    return await anext(w.mailbox.consume(TOPIC, visibility_ms=1000, **said))


async def hold(delivery) -> None:
    """Work on it until interrupted."""
    async with delivery:
        await asyncio.sleep(3600)


async def lose_one(w: World) -> None:
    """Work on one that somebody with its receipt settles: from then on every renewal is refused."""
    async with await one(w) as delivery:
        await w.mailbox.nack(delivery, delay_ms=0)
        await asyncio.sleep(3600)


async def test_a_block_longer_than_its_lease_is_not_delivered_twice() -> None:
    async with world() as w:
        await w.send(1)
        async with await one(w) as delivery:
            for _ in range(20):
                await asyncio.sleep(0.5)
                assert await w.mailbox.recv(TOPIC) == ()

        assert (delivery.attempt, await w.left()) == (1, GONE)


async def test_a_block_that_ends_acks_and_its_lease_is_renewed_no_more() -> None:
    async with world() as w:
        await w.send(1)
        async with await one(w):
            pass
        asked = w.server.renewals
        await asyncio.sleep(10)

        assert (await w.left(), w.server.renewals - asked, len(w.keeper)) == (GONE, 0, 0)


async def test_a_block_that_begins_as_the_keeper_ends_is_kept_too() -> None:
    """The keeper's task ends when nothing is held, and is there for one more turn of the loop."""
    async with world() as w:
        await w.send(2)
        first, second = await one(w), await one(w)
        w.keeper.hold(first)
        w.keeper.release(first)
        await asyncio.sleep(0)
        async with second:
            await asyncio.sleep(10)
            assert len(await w.mailbox.recv(TOPIC, max_messages=2)) == 1

        assert (second.lost, w.server.renewals > 10) == (None, True)


async def test_an_error_nacks_with_its_name_and_goes_on() -> None:
    async with world() as w:
        await w.send(1)
        with pytest.raises(ZeroDivisionError):
            async with await one(w):
                raise ZeroDivisionError("a secret")

        [nack] = w.server.nacks
        assert (nack.reason, nack.delay_ms) == ("ZeroDivisionError", None)
        [again] = await w.mailbox.recv(TOPIC, wait_ms=20_000)
        assert again.attempt == 2


async def test_reject_nacks_as_it_says_and_ends_the_block_quietly() -> None:
    async with world() as w:
        await w.send(1)
        async with await one(w):
            raise Reject("card declined", delay_ms=7000)

        assert [(nack.reason, nack.delay_ms) for nack in w.server.nacks] == [("card declined", 7000)]
        assert (await w.left())["delayed"] == 1


async def test_a_block_may_settle_by_itself() -> None:
    async with world() as w:
        await w.send(2)
        async with await one(w) as first:
            await first.ack()
        second = await one(w)

        async def nack_and_fail() -> None:
            async with second:
                await second.nack("not now", delay_ms=60_000)
                raise ValueError("too late")

        with pytest.raises(ValueError, match="too late"):
            await nack_and_fail()
        assert [nack.reason for nack in w.server.nacks] == ["not now"]
        with pytest.raises(RuntimeError):
            await first.ack()


async def test_a_cancelled_block_gives_its_message_back_at_once() -> None:
    async with world() as w:
        await w.send(1)
        entered = asyncio.Event()

        async def work() -> None:
            async with await one(w):
                entered.set()
                await asyncio.sleep(3600)

        async with started(work()) as task:
            await entered.wait()
            task.cancel()
            await asyncio.wait({task})

            assert task.cancelled()
            assert await w.left() == {**GONE, "ready": 1}


async def test_a_lost_lease_interrupts_the_block() -> None:
    async with world() as w:
        await w.send(1)
        with pytest.raises(LeaseLost) as lost:
            await lose_one(w)

        assert lost.value.facts["reason"] == "stale_receipt"
        assert asyncio.current_task().cancelling() == 0
        assert w.metrics.value("leases_lost_total") == 1


async def test_a_lost_lease_is_only_told_when_that_is_wanted() -> None:
    async with world() as w:
        await w.send(1)
        delivery = await one(w, on_lost="tell")

        async def work() -> None:
            async with delivery:
                await w.mailbox.nack(delivery, delay_ms=0)
                assert delivery.lost is None
                await asyncio.sleep(5)
                assert delivery.lost is not None
                with pytest.raises(LeaseLost):
                    await delivery.ack()

        with pytest.raises(LeaseLost):
            await work()


async def test_an_error_of_a_block_that_lost_its_lease_is_the_blocks_own() -> None:
    async with world() as w:
        await w.send(1)

        async def work() -> None:
            async with await one(w, on_lost="tell") as delivery:
                await w.mailbox.nack(delivery, delay_ms=0)
                await asyncio.sleep(5)
                raise KeyError

        with pytest.raises(KeyError):
            await work()

        assert len(w.server.nacks) == 1


async def test_a_cancel_from_outside_is_no_lost_lease() -> None:
    async with world() as w:
        await w.send(1)

        async def work() -> None:
            async with await one(w) as delivery:
                await w.mailbox.nack(delivery, delay_ms=0)
                try:
                    await asyncio.sleep(3600)
                finally:
                    asyncio.current_task().cancel()

        async with started(work()) as task:
            await asyncio.wait({task})

            assert task.cancelled()


async def test_an_ack_that_comes_too_late_is_told() -> None:
    async with world() as w:
        await w.send(1)
        with pytest.raises(LeaseLost):
            async with await one(w) as delivery:
                await w.mailbox.nack(delivery, delay_ms=0)

        assert await w.left() == {**GONE, "ready": 1}


async def test_a_block_that_blocked_the_loop_over_its_lease_has_lost_it() -> None:
    async with world() as w:
        await w.send(1)
        with pytest.raises(LeaseLost) as lost:
            async with await one(w) as delivery:
                # What `time.sleep` would do: time passes, and nobody else had a turn.
                asyncio.get_running_loop().advance(2.5)

        assert (lost.value.facts["reason"], delivery.settled, len(w.keeper)) == ("lapsed", True, 0)


async def test_an_outage_shorter_than_the_lease_loses_nothing() -> None:
    async with world() as w:
        await w.send(1)
        async with await one(w):
            for _ in range(5):
                w.server.down = AWAY
                await asyncio.sleep(0.5)
                w.server.down = None
                await asyncio.sleep(0.5)

        assert await w.left() == GONE


async def test_an_outage_longer_than_the_lease_loses_it_before_another_has_it() -> None:
    async with world() as w:
        await w.send(1)
        loop = asyncio.get_running_loop()
        delivery, began_at = await one(w), loop.time()
        w.server.down = AWAY
        with pytest.raises(LeaseLost) as lost:
            await hold(delivery)

        assert lost.value.facts["reason"] == "not_renewed"
        assert loop.time() - began_at < 1.0


async def test_a_silent_node_loses_the_lease_at_its_end_and_not_later() -> None:
    """A renewal that hangs is waited for until the lease ends: after that another consumer may have the message."""
    async with world() as w:
        await w.send(2)
        loop = asyncio.get_running_loop()
        delivery, far = await one(w), await anext(w.mailbox.consume(TOPIC, visibility_ms=60_000))
        given_at = loop.time()
        w.server.lag_s = 3600
        async with started(hold(far)):
            with pytest.raises(LeaseLost) as lost:
                await hold(delivery)
            lost_at = loop.time()

        assert lost.value.facts["reason"] == "not_renewed"
        assert 0.9 <= lost_at - given_at < 1.0, "while it lasts, and before another can have the message"


async def test_an_ack_is_tried_until_the_lease_ends() -> None:
    async with world() as w:
        await w.send(2)

        async def mend() -> None:
            await asyncio.sleep(0.6)
            w.server.down = None

        async with await one(w) as first:
            w.server.down = AWAY
            mending = asyncio.get_running_loop().create_task(mend())
        await mending
        assert first.lost is None
        assert await w.left() == {**GONE, "ready": 1}

        with pytest.raises(DownstreamUnavailable):
            async with await one(w):
                w.server.down = AWAY


async def test_a_delivery_nobody_began_is_not_begun_after_its_lease() -> None:
    async with world() as w:
        await w.send(1)
        delivery = await one(w)
        await asyncio.sleep(1)

        with pytest.raises(LeaseLost):
            await delivery.__aenter__()
        [again] = await w.mailbox.recv(TOPIC)
        assert again.attempt == 2


async def test_a_damaged_message_never_reaches_the_handler() -> None:
    async with world() as w:
        await w.send(1)
        delivery = await one(w)
        delivery.envelope = msgspec.structs.replace(delivery.envelope, payload=b"changed")

        with pytest.raises(Integrity):
            await delivery.__aenter__()
        assert [nack.reason for nack in w.server.nacks] == ["integrity"]
        assert len(w.keeper) == 0


async def test_leases_are_renewed_together() -> None:
    async with world() as w:
        await w.send(100)

        async def handle(_delivery) -> None:
            await asyncio.sleep(10)

        async with started(w.mailbox.run(TOPIC, handle, concurrency=100, visibility_ms=3000)):
            await asyncio.sleep(9.5)

            assert w.metrics.value("leases_renewed_total") == 900
            assert w.server.renewals == 9


async def test_the_keeper_is_not_under_the_deadline_of_whoever_enters_first() -> None:
    async with world() as w:
        await w.send(2)
        first = await one(w)

        async def work_in_time() -> None:
            async with timeout("first", 0.1):
                await hold(first)

        with pytest.raises(Timeout):
            await work_in_time()
        second = await one(w)
        async with second:
            await asyncio.sleep(10)

        assert second.lost is None


async def test_the_keeper_serves_a_nearer_lease_that_comes_later() -> None:
    async with world() as w:
        await w.send(2)
        far = await anext(w.mailbox.consume(TOPIC, visibility_ms=60_000))
        async with far:
            await asyncio.sleep(0.1)  # the keeper sleeps now, for a third of a minute
            near = await anext(w.mailbox.consume(TOPIC, visibility_ms=300))
            async with near:
                await asyncio.sleep(5)

        assert (far.lost, near.lost, await w.left()) == (None, None, GONE)


async def test_more_leases_than_a_batch_holds_are_all_kept() -> None:
    async with world() as w:
        await w.send(m.BATCH_MAX + 44)
        consumers = [w.mailbox.consume(TOPIC, visibility_ms=600, concurrency=150) for _ in range(2)]
        done = 0

        async def handle(_delivery) -> None:
            nonlocal done
            await asyncio.sleep(3)
            done += 1

        async with started(consumers[0].run(handle)), started(consumers[1].run(handle)):
            await asyncio.sleep(4)

            assert (done, await w.left()) == (m.BATCH_MAX + 44, GONE)
