"""The consumer: bounded, patient with a node that is away, and orderly when it is told to stop."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.errors import Busy, Forbidden
from penstock.testing import Run, sweep
from tests.sdk.kit import (
    AWAY,
    GONE,
    TOPIC,
    World,
    started,
    world,
)


class Handlers:
    """Handlers that take time, and what became of them."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.running = self.peak = 0
        self.began: list[bytes] = []
        self.finished: list[bytes] = []

    async def __call__(self, delivery) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)
        self.began.append(delivery.payload)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        self.finished.append(delivery.payload)


async def test_handlers_run_at_once_up_to_the_concurrency() -> None:
    async with world() as w:
        await w.send(20)
        handle, loop = Handlers(), asyncio.get_running_loop()
        began_at = loop.time()
        async with started(w.mailbox.run(TOPIC, handle, concurrency=4)):
            await asyncio.sleep(5.5)

            assert (handle.peak, len(handle.finished), await w.left()) == (4, 20, GONE)
            assert loop.time() - began_at == 5.5


async def test_handlers_that_settle_early_are_no_more_at_once() -> None:
    async with world() as w:
        await w.send(20)
        handle = Handlers()

        async def early(delivery) -> None:
            await delivery.ack()
            await handle(delivery)

        async with started(w.mailbox.run(TOPIC, early, concurrency=2)) as task:
            await asyncio.sleep(10.5)

            assert (handle.peak, len(handle.finished), task.done()) == (2, 20, False)


async def test_a_cancel_drains_what_is_worked_on_and_takes_no_more() -> None:
    async with world() as w:
        await w.send(20)
        handle = Handlers(5.0)
        async with started(w.mailbox.run(TOPIC, handle, concurrency=4)) as task:
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})

            assert task.cancelled()
            assert (len(handle.began), len(handle.finished)) == (4, 4)
            assert await w.left() == {**GONE, "ready": 16}


async def test_handlers_that_outlast_the_drain_are_cut_and_their_messages_given_back() -> None:
    async with world() as w:
        await w.send(2)
        handle, loop = Handlers(3600), asyncio.get_running_loop()
        began_at = loop.time()
        async with started(w.mailbox.run(TOPIC, handle, concurrency=2, drain_s=2.0)) as task:
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})

            assert (task.cancelled(), handle.running, round(loop.time() - began_at, 3)) == (True, 0, 3.0)
            assert await w.left() == {**GONE, "ready": 2}


async def test_a_second_cancel_cuts_the_drain_short() -> None:
    async with world() as w:
        await w.send(1)
        handle, loop = Handlers(3600), asyncio.get_running_loop()
        began_at = loop.time()
        async with started(w.mailbox.run(TOPIC, handle, drain_s=600)) as task:
            for _ in range(2):
                await asyncio.sleep(1)
                task.cancel()
            await asyncio.wait({task})

            assert (task.cancelled(), handle.running, round(loop.time() - began_at, 3)) == (True, 0, 2.0)
            assert await w.left() == {**GONE, "ready": 1}


async def test_stop_ends_the_run_when_its_handlers_have() -> None:
    async with world() as w:
        await w.send(3)
        consumer, handle = w.mailbox.consume(TOPIC, concurrency=3), Handlers(5.0)
        async with started(consumer.run(handle)) as task:
            await asyncio.sleep(1)
            consumer.stop()
            await asyncio.wait({task})

            assert (task.exception(), len(handle.finished), await w.left()) == (None, 3, GONE)


async def test_stop_cuts_a_poll_that_waits() -> None:
    async with world() as w:
        consumer, loop = w.mailbox.consume(TOPIC, wait_ms=20_000), asyncio.get_running_loop()
        began_at = loop.time()
        async with started(consumer.run(Handlers())) as task:
            await asyncio.sleep(1)
            consumer.stop()
            consumer.stop()
            await asyncio.wait({task})

            assert (task.exception(), loop.time() - began_at) == (None, 1.0)
            await w.send(1)
            assert await w.left() == {**GONE, "ready": 1}, "the cut poll takes nothing any more"


async def test_stop_ends_every_iteration_over_a_consumer() -> None:
    async with world() as w:
        consumer, loop = w.mailbox.consume(TOPIC, concurrency=2), asyncio.get_running_loop()
        began_at = loop.time()

        async def iterate() -> str:
            return "".join([delivery.payload.decode() async for delivery in consumer])

        async with started(iterate()) as one, started(iterate()) as other:
            await asyncio.sleep(1)
            consumer.stop()
            await asyncio.wait({one, other})

            assert (one.result(), other.result(), loop.time() - began_at) == ("", "", 1.0)
            assert one.cancelling() == other.cancelling() == 0


async def test_a_cancel_that_comes_with_a_stop_is_a_cancel() -> None:
    async with world() as w:
        consumer = w.mailbox.consume(TOPIC)
        async with started(consumer.run(Handlers())) as task:
            await asyncio.sleep(1)
            task.cancel()
            consumer.stop()
            await asyncio.wait({task})

            assert task.cancelled()


async def test_what_always_fails_becomes_a_dead_letter_and_the_others_flow() -> None:
    async with world(max_attempts=3) as w:
        await w.send(5)
        tried: list[tuple[bytes, int]] = []

        async def handle(delivery) -> None:
            tried.append((delivery.payload, delivery.attempt))
            if delivery.payload == b"2":
                raise RuntimeError

        async with started(w.mailbox.run(TOPIC, handle, concurrency=2)):
            await asyncio.sleep(60)

            assert await w.left() == {**GONE, "dlq": 1}
            assert sorted(tried) == [(b"0", 1), (b"1", 1), (b"2", 1), (b"2", 2), (b"2", 3), (b"3", 1), (b"4", 1)]
            [dead] = [letter async for letter in w.mailbox.dead_letters(TOPIC)]
            assert dead.reason == "rejected:RuntimeError"


@pytest.mark.parametrize("error", [AWAY, Busy(retry_after=2)])
async def test_a_node_that_is_away_is_waited_for(error) -> None:
    async with world() as w:
        w.server.down = error
        handle = Handlers(0.0)
        async with started(w.mailbox.run(TOPIC, handle)) as task:
            await asyncio.sleep(60)
            asked = w.server.polls
            assert 10 < asked < 100, "not at all, or without a pause"
            w.server.down = None
            await w.send(3)
            await asyncio.sleep(10)

            assert (len(handle.finished), await w.left(), task.done()) == (3, GONE, False)


async def test_what_waiting_cannot_mend_ends_the_run_after_its_handlers() -> None:
    async with world() as w:
        await w.send(2)
        handle = Handlers(5.0)
        async with started(w.mailbox.run(TOPIC, handle, concurrency=2, wait_ms=1000)) as task:
            await asyncio.sleep(1)
            w.server.down = Forbidden()
            await asyncio.sleep(6)

            assert isinstance(task.exception(), Forbidden)
            assert len(handle.finished) == 2


async def test_a_mailbox_that_may_lease_no_more_is_not_asked_without_pause() -> None:
    async with world(global_inflight=1) as w:
        await w.send(2)
        assert len(await w.mailbox.recv(TOPIC, visibility_ms=60_000)) == 1
        async with started(w.mailbox.run(TOPIC, Handlers(), wait_ms=0)):
            await asyncio.sleep(30)

            assert w.server.polls < 500


async def test_a_loop_holds_at_most_as_many_as_it_may() -> None:
    async with world() as w:
        await w.send(5)
        consumer, loop = w.mailbox.consume(TOPIC, concurrency=2, visibility_ms=10_000), asyncio.get_running_loop()
        began_at = loop.time()
        held = [await anext(consumer), await anext(consumer)]
        async with started(anext(consumer)) as third:
            await asyncio.sleep(5)
            assert (third.done(), (await w.left())["inflight"]) == (False, 2)
            await held[0].ack()
            await asyncio.wait({third})
            held.append(third.result())
        assert loop.time() - began_at == 5
        # Nobody works on the second: its lease runs out, which frees its place, and it comes again.
        fourth = await anext(consumer)

        assert (loop.time() - began_at, fourth.attempt) == (10, 2)
        assert fourth.msg_id == held[1].msg_id


async def test_several_tasks_may_share_a_consumer() -> None:
    async with world() as w:
        await w.send(12)
        consumer, done = w.mailbox.consume(TOPIC, concurrency=3), []

        async def work() -> None:
            async for delivery in consumer:
                async with delivery as message:
                    await asyncio.sleep(1)
                    done.append(message.payload)

        async with started(work()), started(work()), started(work()):
            await asyncio.sleep(4.5)

            assert (len(done), len(set(done)), await w.left()) == (12, 12, GONE)


async def test_leaving_the_loop_leaves_nothing_behind() -> None:
    async with world() as w:
        await w.send(3)
        async for delivery in w.mailbox.consume(TOPIC, visibility_ms=1000):
            async with delivery:
                break

        assert len(w.keeper) == 0
        await asyncio.sleep(2)
        assert await w.left() == {**GONE, "ready": 2}


def test_a_cancel_at_any_step_loses_no_message_and_does_none_twice_over() -> None:
    async def scenario(run: Run) -> tuple[int, dict[str, int], list[bytes]]:
        async with world() as w:
            await w.send(3)
            w.server.lag_s = 0.01
            handle = Handlers(0.5)
            run.start(w.mailbox.run(TOPIC, handle, concurrency=2, visibility_ms=300, wait_ms=1000))
            await asyncio.sleep(3)
            run.target.cancel()
            await asyncio.wait({run.target})
            # What was leased by an answer that got lost comes back when its lease ends.
            await asyncio.sleep(1)
            return await _finish(w), await w.left(), handle.finished

    def every_message_is_done(outcome: tuple[int, dict[str, int], list[bytes]]) -> None:
        left_over, left, finished = outcome
        assert left == GONE
        assert len(finished) == len(set(finished))
        assert left_over + len(finished) >= 3

    sweep(scenario, check=every_message_is_done)


async def _finish(w: World) -> int:
    """Take what is left."""
    w.server.lag_s, taken = 0.0, 0
    while messages := await w.mailbox.recv(TOPIC, wait_ms=5000, max_messages=10):
        for message in messages:
            await w.mailbox.ack(message)
            taken += 1
    return taken
