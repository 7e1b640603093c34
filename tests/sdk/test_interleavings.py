"""The SDK when a stop, a closed client, a lost node or a failing handler comes before any step of a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import Deadline, timeout, use_deadline
from penstock.kernel.errors import Canceled, Conflict, Internal, PenstockError, Timeout
from penstock.sdk.errors import ClientClosed, LeaseLost
from penstock.testing import Run, sweep
from tests.sdk.kit import (
    AWAY,
    GONE,
    TOPIC,
    World,
    world,
)

Act = Callable[[World, object], Awaitable[None]]


class Bench:
    """Handlers that note who works on what: nobody may be two at once on one message."""

    def __init__(self) -> None:
        self.seconds = 0.25
        self.at_work: Counter[str] = Counter()
        self.twice = 0
        self.finished: list[str] = []

    async def __call__(self, delivery) -> None:
        self.twice += self.at_work[delivery.msg_id]
        self.at_work[delivery.msg_id] += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_work[delivery.msg_id] -= 1
        self.finished.append(delivery.msg_id)


async def when_struck(act: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Wait; when cancelled, which the sweep does before every step, do `act`."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await act()
        raise


async def finish(w: World) -> int:
    """Take what is left, as another consumer would once the leases have ended."""
    w.server.lag_s, w.server.down, taken = 0.0, None, 0
    while messages := await w.mailbox.recv(TOPIC, wait_ms=2000, max_messages=10):
        for message in messages:
            await w.mailbox.ack(message)
            taken += 1
    return taken


async def stop(_w: World, consumer) -> None:
    consumer.stop()


async def close(w: World, _consumer) -> None:
    await w.keeper.close()


async def outage(w: World, _consumer) -> None:
    w.server.down = AWAY
    await asyncio.sleep(0.7)
    w.server.down = None


async def shutdown(w: World, _consumer) -> None:
    w.server.down = Canceled()
    await asyncio.sleep(0.2)
    w.server.down = None


@pytest.mark.parametrize("act", [stop, close, outage, shutdown])
def test_whatever_happens_at_any_step_no_message_is_lost_or_worked_on_twice_at_once(act: Act) -> None:
    async def scenario(run: Run) -> tuple[int, int, int, dict[str, int], int]:
        async with world() as w:
            await w.send(3)
            w.server.lag_s = 0.01
            handle, consumer = Bench(), w.mailbox.consume(TOPIC, concurrency=2, visibility_ms=300, wait_ms=500)
            working = asyncio.get_running_loop().create_task(consumer.run(handle))
            run.start(when_struck(lambda: act(w, consumer), 1.2))
            await run.ended()
            await asyncio.sleep(2)
            consumer.stop()
            await asyncio.wait({working})
            with suppress(PenstockError):
                working.result()
            await asyncio.sleep(1)
            return len(handle.finished), await finish(w), handle.twice, await w.left(), len(w.keeper)

    def nothing_lost(outcome: tuple[int, int, int, dict[str, int], int]) -> None:
        finished, left_over, twice, left, held = outcome
        assert finished + left_over >= 3
        assert (twice, left, held) == (0, GONE, 0)

    assert sweep(scenario, check=nothing_lost) > 50


def test_a_block_that_begins_or_ends_at_any_step_of_anothers_is_kept() -> None:
    """The keeper's task comes and goes with what is held: at no step may a lease fall between two of them."""

    async def scenario(run: Run) -> tuple[object, dict[str, int]]:
        async with world() as w:
            await w.send(2)
            w.server.lag_s = 0.01
            consumer = w.mailbox.consume(TOPIC, concurrency=2, visibility_ms=300)
            first, second = await anext(consumer), await anext(consumer)

            async def short() -> None:
                async with first:
                    await asyncio.sleep(0.15)

            async def begin() -> None:
                async with second:
                    await asyncio.sleep(1)

            shorter = asyncio.get_running_loop().create_task(short())
            run.start(when_struck(begin, 0.25))
            await run.ended()
            await shorter
            if not second.begun:  # not struck, or before it could do anything
                await begin()
            return second.lost, await w.left()

    def both_are_kept(outcome: tuple[object, dict[str, int]]) -> None:
        assert outcome == (None, GONE)

    assert sweep(scenario, check=both_are_kept) > 10


def test_two_clients_on_one_loop_keep_out_of_each_others_way() -> None:
    async def scenario(run: Run) -> tuple[object, int]:
        async with world() as one, world() as other:
            await one.send(1)
            await other.send(1)
            mine = await anext(one.mailbox.consume(TOPIC, visibility_ms=300))
            theirs = await anext(other.mailbox.consume(TOPIC, visibility_ms=300))

            async def hold(delivery) -> None:
                async with delivery:
                    await asyncio.sleep(1)

            kept = asyncio.get_running_loop().create_task(hold(mine))
            gone = asyncio.get_running_loop().create_task(hold(theirs))
            run.start(when_struck(other.keeper.close, 0.5))
            await run.ended()
            await asyncio.wait({kept, gone})
            gone.exception()
            return mine.lost or kept.exception(), (await one.left())["inflight"]

    def the_other_is_not_touched(outcome: tuple[object, int]) -> None:
        assert outcome == (None, 0)

    sweep(scenario, check=the_other_is_not_touched)


# --- a closed client


async def test_a_block_of_a_closed_client_is_interrupted_and_told_why() -> None:
    async with world() as w:
        await w.send(1)
        delivery = await anext(w.mailbox.consume(TOPIC))

        async def work() -> None:
            async with delivery:
                await asyncio.sleep(3600)

        working = asyncio.get_running_loop().create_task(work())
        await asyncio.sleep(1)
        await w.keeper.close()
        await asyncio.wait({working})

        assert isinstance(working.exception(), LeaseLost)
        assert working.exception().facts["reason"] == "client_closed"


async def test_a_block_is_not_begun_on_a_closed_client() -> None:
    async with world() as w:
        await w.send(1)
        delivery = await anext(w.mailbox.consume(TOPIC))
        await w.keeper.close()

        with pytest.raises(ClientClosed):
            await delivery.__aenter__()


# --- failures nobody awaits


async def run_once(w: World, handler, **said) -> int:
    """Have one message worked on, and return how many failures were counted."""
    consumer = w.mailbox.consume(TOPIC, **said)

    async def the_only_one(delivery) -> None:
        consumer.stop()
        await handler(delivery)

    await consumer.run(the_only_one)
    families = {family.name: family for family in w.metrics.families()}
    failures = families.get("job_failures_total")
    return 0 if failures is None else sum(series.value for series in failures.series.values())


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.fields["event"] for record in caplog.records if hasattr(record, "fields")]


async def fail(_delivery) -> None:
    raise RuntimeError("boom")


async def fail_as_a_service_would(_delivery) -> None:
    raise Conflict("boom")


async def await_what_is_cancelled(_delivery) -> None:
    inner = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
    asyncio.get_running_loop().call_later(0.1, inner.cancel)
    await inner


async def settle_behind_its_back(delivery) -> None:
    await delivery._mailbox.nack(m.Nack(delivery.msg_id, delivery.receipt, None, 60_000))


@pytest.mark.parametrize(
    ("handler", "event"),
    [
        (fail, "handler.failed"),
        (fail_as_a_service_would, "handler.failed"),
        (await_what_is_cancelled, "handler.failed"),
        (settle_behind_its_back, "delivery.lost"),
    ],
)
async def test_a_handler_that_ends_by_an_error_is_seen(handler, event: str, caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        await w.send(1)
        counted = await run_once(w, handler)

        assert (counted, events(caplog)) == (1, [event])


async def test_a_message_that_could_not_be_settled_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        await w.send(1)

        async def lose_the_node(_delivery) -> None:
            w.server.down = AWAY

        assert await run_once(w, lose_the_node, visibility_ms=300) == 1
        assert events(caplog).count("delivery.not_settled") == 1


async def test_a_handler_that_awaited_something_cancelled_is_backed_off_as_any_failure() -> None:
    async with world() as w:
        await w.send(1)
        await run_once(w, await_what_is_cancelled)

        assert [(nack.reason, nack.delay_ms) for nack in w.server.nacks] == [("CancelledError", None)]


async def test_handlers_that_end_well_are_no_failures(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        await w.send(1)

        assert (await run_once(w, Bench()), events(caplog)) == (0, [])


# --- a node that fails by itself


@pytest.mark.parametrize("error", [Canceled(), Internal()])
async def test_a_node_that_fails_a_poll_by_itself_does_not_end_the_consumer(error: PenstockError) -> None:
    async with world() as w:
        await w.send(1)
        w.server.down = error
        handle, consumer = Bench(), w.mailbox.consume(TOPIC)
        working = asyncio.get_running_loop().create_task(consumer.run(handle))
        await asyncio.sleep(3)
        w.server.down = None
        await asyncio.sleep(10)
        consumer.stop()
        await working

        assert (len(handle.finished), await w.left()) == (1, GONE)


@pytest.mark.parametrize("error", [Canceled(), Internal()])
async def test_an_ack_that_a_shutdown_cut_is_tried_again(error: PenstockError) -> None:
    async with world() as w:
        await w.send(1)
        async with await anext(w.mailbox.consume(TOPIC)):
            w.server.down = error
            asyncio.get_running_loop().call_later(2, setattr, w.server, "down", None)

        assert await w.left() == GONE


async def test_an_answer_about_other_leases_is_a_failed_renewal() -> None:
    async with world() as w:
        await w.send(1)
        whole = w.server.extend_batch

        async def none_of_them(_request, _call=None) -> m.SettledBatch:
            return m.SettledBatch(())

        w.server.extend_batch = none_of_them
        async with await anext(w.mailbox.consume(TOPIC, visibility_ms=1000)) as delivery:
            await asyncio.sleep(0.5)
            w.server.extend_batch = whole
            await asyncio.sleep(5)

        assert (delivery.lost, await w.left()) == (None, GONE)


# --- deadlines


async def test_a_block_that_its_deadline_ended_gives_its_message_back_at_once() -> None:
    async with world() as w:
        await w.send(1)
        w.server.lag_s = 0.05

        async def work() -> None:
            async with timeout("work", 1.0), await anext(w.mailbox.consume(TOPIC)):
                await asyncio.sleep(3600)

        with pytest.raises(Timeout):
            await work()
        assert (await w.left())["ready"] == 1


async def test_a_consumer_under_a_deadline_that_passed_says_so() -> None:
    async with world() as w:
        await w.send(2)
        consumer = w.mailbox.consume(TOPIC)
        await anext(consumer)

        with use_deadline(Deadline.after(1.0, asyncio.get_running_loop().time())), pytest.raises(Timeout):
            await anext(consumer)
