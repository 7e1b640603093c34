"""What a worker loop promises; `make` is a JobLoop class."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.channel import Channel, Full
from penstock.kernel.deadline import Deadline, current_deadline
from penstock.kernel.errors import Busy, Internal, Malformed, Timeout
from penstock.kernel.metrics import Metrics
from penstock.kernel.worker import FAILURES_IN_A_ROW_MAX, Job, current_corr_id
from penstock.testing.session import run
from penstock.testing.sweep import Run, sweep
from tests.kernel.kit import now


class Shop:
    """A channel, a worker on it, and what it did."""

    def __init__(self, make, handle=None, capacity: int = 256) -> None:
        self.metrics = Metrics("svc-test")
        self.channel: Channel = Channel("work", capacity=capacity, full=Full.REFUSE)
        self.handled: list[object] = []
        self.loop = make("worker", self.channel, handle or self._handle, self.metrics)

    async def _handle(self, value):
        await asyncio.sleep(0.1)
        self.handled.append(value)
        if isinstance(value, BaseException):
            raise value
        return value

    def send(self, value, **carried) -> Job:
        job: Job = Job(value, **carried)
        self.channel.try_send(job)
        return job

    def open(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.loop.run(now))

    def failures(self, kind: str) -> float:
        return self.metrics.value("job_failures_total", worker="worker", type=kind)


def check_closing_ends_a_worker_only_after_the_last_job(make) -> None:
    async def scenario() -> None:
        shop = Shop(make)
        task = shop.open()
        jobs = [shop.send(value) for value in range(5)]
        await asyncio.sleep(0.15)
        shop.channel.close()
        await task
        assert all(job.reply.done() for job in jobs)
        assert [job.reply.result() for job in jobs] == [0, 1, 2, 3, 4]

    run(scenario())


def check_a_job_that_raises_is_internal_and_the_worker_goes_on(make) -> None:
    async def scenario() -> None:
        shop = Shop(make)
        task = shop.open()
        bad, good = shop.send(ZeroDivisionError("planted"), corr_id="c-1"), shop.send("good")
        await asyncio.wait([bad.reply, good.reply])
        failure = bad.reply.exception()
        assert isinstance(failure, Internal)
        assert failure.facts["corr_id"] == "c-1"
        assert good.reply.result() == "good"
        assert shop.failures("ZeroDivisionError") == 1
        shop.channel.close()
        await task

    run(scenario())


def check_a_condition_reaches_the_sender_as_it_is(make) -> None:
    async def scenario() -> None:
        shop = Shop(make)
        task = shop.open()
        job = shop.send(Malformed("no such topic"))
        await asyncio.wait([job.reply])
        assert isinstance(job.reply.exception(), Malformed)
        assert not any(family.name == "job_failures_total" for family in shop.metrics.families())
        shop.channel.close()
        await task

    run(scenario())


def check_a_job_that_awaited_something_cancelled_is_a_failed_job(make) -> None:
    async def scenario() -> None:
        async def handle(value):
            if value == "good":
                return value
            dead = asyncio.get_running_loop().create_future()
            dead.cancel()
            return await dead

        shop = Shop(make, handle)
        task = shop.open()
        bad, good = shop.send("bad"), shop.send("good")
        await asyncio.wait([bad.reply, good.reply], timeout=10)
        assert good.reply.done(), "the worker died of a job"
        assert isinstance(bad.reply.exception(), Internal)
        shop.channel.close()
        await task

    run(scenario())


def check_a_hundred_failed_jobs_in_a_row_are_a_crash(make) -> None:
    async def scenario() -> None:
        shop = Shop(make, capacity=512)
        for not_a_failure in ("good", Malformed("a condition")):
            for _ in range(FAILURES_IN_A_ROW_MAX - 1):
                shop.send(KeyError("planted"))
            shop.send(not_a_failure)
        for _ in range(FAILURES_IN_A_ROW_MAX):
            shop.send(KeyError("planted"))
        last = shop.send("not reached")
        with pytest.raises(RuntimeError, match="100 jobs in a row"):
            await shop.loop.run(now)
        assert (shop.failures("KeyError"), last.taken) == (298, False)

    run(scenario())


def check_a_restarted_worker_is_judged_anew(make) -> None:
    async def scenario() -> None:
        shop = Shop(make)
        for _ in range(FAILURES_IN_A_ROW_MAX):
            shop.send(KeyError("planted"))
        with pytest.raises(RuntimeError):
            await shop.loop.run(now)
        shop.send(KeyError("planted"))
        good = shop.send("good")
        shop.channel.close()
        try:
            await shop.loop.run(now)
        except RuntimeError:
            pytest.fail("one failure was enough")
        assert good.reply.result() == "good"

    run(scenario())


def check_a_killed_worker_answers_the_job_in_its_hands(make) -> None:
    """At whatever step the kill comes, no job that left the channel is without an answer."""

    async def scenario(run: Run[list[str]]) -> list[str]:
        shop = Shop(make)
        jobs = [shop.send(value) for value in range(3)]
        run.start(shop.loop.run(now))
        shop.channel.close()
        await run.ended()
        left = shop.channel.depth
        return ["answered" if job.reply.done() else "lost" for job in jobs[: 3 - left]]

    sweep(scenario, check=lambda jobs: "lost" not in jobs)


def check_a_withdrawn_job_is_not_worked_on(make) -> None:
    async def scenario() -> None:
        shop = Shop(make)
        gone, stays = shop.send("gone"), shop.send("stays")
        assert gone.withdraw()
        task = shop.open()
        await asyncio.sleep(0.05)
        assert not stays.withdraw(), "a worker has it"
        shop.channel.close()
        await task
        assert shop.handled == ["stays"]
        assert stays.reply.result() == "stays"

    run(scenario())


def check_a_job_whose_time_is_up_gets_a_timeout_unworked(make) -> None:
    async def scenario() -> None:
        shop = Shop(make)
        late = shop.send("late", deadline=Deadline.after(0.05, now()))
        await asyncio.sleep(0.05)
        shop.channel.close()
        await shop.loop.run(now)
        failure = late.reply.exception()
        assert isinstance(failure, Timeout)
        assert failure.budget_s == 0.05
        assert shop.handled == []

    run(scenario())


def check_deadline_and_corr_id_cross_the_channel(make) -> None:
    async def scenario() -> None:
        seen: list[tuple[float | None, str]] = []

        async def handle(value) -> None:
            deadline = current_deadline()
            seen.append((deadline.at if deadline else None, current_corr_id()))

        shop = Shop(make, handle)
        shop.send(1)
        shop.send(2, deadline=Deadline.after(2.0, now()), corr_id="c-7")
        shop.channel.close()
        await shop.loop.run(now)
        assert seen == [(None, ""), (1002.0, "c-7")]
        assert (current_deadline(), current_corr_id()) == (None, "")

    run(scenario())


def check_a_full_shop_refuses_at_once(make) -> None:
    async def scenario() -> None:
        shop = Shop(make, capacity=2)
        task = shop.open()
        await asyncio.sleep(0)
        shop.send(1)
        await asyncio.sleep(0.01)
        jobs = [shop.send(2), shop.send(3)]
        await asyncio.sleep(0.01)
        before = now()
        with pytest.raises(Busy):
            shop.send(4)
        assert now() == before
        shop.channel.close()
        await task
        assert all(job.reply.done() for job in jobs)

    run(scenario())
