"""The discipline around every call into a service: places, breaker, deadline, retries, hedge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import Deadline, current_deadline, use_deadline
from penstock.kernel.errors import (
    BackoffRetry,
    Busy,
    Conflict,
    DownstreamUnavailable,
    Internal,
    NotReady,
    PenstockError,
    Timeout,
)
from penstock.kernel.inventory import Inventory
from penstock.services.omnigate.own.downstream import Downstream, DownstreamOptions
from penstock.testing.sweep import Run, sweep
from tests.net.calls.peers import HalfRng


class Service:
    """Work that goes as scripted: each call takes the next outcome, the last one stays."""

    def __init__(self, *outcomes: object, takes_s: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.takes_s = takes_s
        self.calls = 0
        self.under_way = 0
        self.deadlines: list[float] = []

    async def __call__(self) -> object:
        self.calls += 1
        deadline = current_deadline()
        assert deadline is not None
        self.deadlines.append(deadline.remaining(asyncio.get_running_loop().time()))
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.under_way += 1
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.under_way -= 1
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome


@asynccontextmanager
async def downstream(*, shedding=lambda: False, **options) -> AsyncIterator[tuple[Downstream, Inventory]]:
    inventory = Inventory("omnigate", LoopClock())
    made = Downstream(inventory, DownstreamOptions(service="mailbox", **options), rng=HalfRng(), shedding=shedding)
    try:
        yield made, inventory
    finally:
        await made.close()


async def test_work_is_done_and_its_latency_counted() -> None:
    async with downstream() as (mailbox, inventory):
        assert await mailbox.call("send", Service("done", takes_s=0.02), idempotent=False) == "done"

        assert inventory.metrics.value("downstream_latency_seconds", service="mailbox") == 1
        assert mailbox.places.in_use == 0


async def test_when_as_many_wait_for_a_place_as_may_the_answer_is_busy_at_once() -> None:
    async with downstream(calls_max=2, waiters_max=0) as (mailbox, _):
        slow = Service("done", takes_s=1.0)
        running = [
            asyncio.get_running_loop().create_task(mailbox.call("send", slow, idempotent=False)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Busy) as refused:
            await mailbox.call("send", slow, idempotent=True)

        assert refused.value.facts["limit"] == "downstream.mailbox"
        assert [await task for task in running] == ["done", "done"]
        assert (slow.calls, mailbox.places.in_use) == (2, 0)


async def test_the_wait_for_a_place_is_within_the_deadline_and_nobodys_fault() -> None:
    async with downstream(calls_max=1, timeout_s=1.0, breaker=BreakerPolicy(timeouts_in_a_row=1)) as (mailbox, _):
        slow = Service("done", takes_s=0.9)
        running = asyncio.get_running_loop().create_task(mailbox.call("send", slow, idempotent=False))
        await asyncio.sleep(0)
        with use_deadline(Deadline.after(0.5, asyncio.get_running_loop().time())), pytest.raises(Timeout) as late:
            await mailbox.call("send", slow, idempotent=False)

        assert late.value.op == "rpc"
        assert await running == "done"
        assert (slow.calls, mailbox.places.in_use, mailbox.line.waiting) == (1, 0, 0)
        assert mailbox.healthy


async def test_the_service_behind_learns_since_when_the_caller_waits() -> None:
    seen: list[float] = []

    async def work() -> None:
        deadline = current_deadline()
        assert deadline is not None
        seen.append(deadline.since)

    async with downstream() as (mailbox, _):
        began_at = asyncio.get_running_loop().time()
        with use_deadline(Deadline.after(2.0, began_at)):
            await asyncio.sleep(0.5)
            await mailbox.call("send", work, idempotent=False)

    assert seen == [began_at]


async def test_clients_in_a_hurry_cannot_open_the_breaker_for_the_others() -> None:
    async with downstream(patience_s=2.0) as (storage, _):
        large = Service("done", takes_s=0.3)
        for _ in range(50):
            with use_deadline(Deadline.after(0.2, asyncio.get_running_loop().time())), pytest.raises(Timeout):
                await storage.call("get", large, idempotent=True)

        assert storage.healthy
        assert await storage.call("get", large, idempotent=True) == "done"


async def test_a_service_that_is_late_for_the_patient_is_ill() -> None:
    async with downstream(patience_s=2.0) as (storage, _):
        hung = Service("done", takes_s=60.0)
        for _ in range(5):
            with use_deadline(Deadline.after(2.0, asyncio.get_running_loop().time())), pytest.raises(Timeout):
                await storage.call("get", hung, idempotent=True)

        assert not storage.healthy


@pytest.mark.parametrize("error", [DownstreamUnavailable(), BackoffRetry(), NotReady()], ids=lambda error: error.code)
async def test_a_passing_failure_of_idempotent_work_is_tried_three_times(error: PenstockError) -> None:
    async with downstream() as (mailbox, inventory):
        loop = asyncio.get_running_loop()
        began, service = loop.time(), Service(error)
        with pytest.raises(type(error)):
            await mailbox.call("get", service, idempotent=True)

        assert service.calls == 3
        assert loop.time() - began == pytest.approx(0.075 + 0.150, abs=0.001)
        assert inventory.metrics.value("backoff_retries_total", op="get", result="failure") == 2
        assert inventory.metrics.value("downstream_errors_total", service="mailbox", reason=error.reason) == 3


async def test_a_retry_that_succeeds_is_the_answer() -> None:
    async with downstream() as (mailbox, inventory):
        assert await mailbox.call("get", Service(DownstreamUnavailable(), "well"), idempotent=True) == "well"

        assert inventory.metrics.value("backoff_retries_total", op="get", result="success") == 1


@pytest.mark.parametrize(
    "error", [Conflict(), Busy(), Internal(), Timeout("kms_sign", budget_s=1.0)], ids=lambda e: e.code
)
async def test_an_answer_a_bug_or_a_deadline_is_not_tried_again(error: PenstockError) -> None:
    async with downstream() as (mailbox, _):
        service = Service(error)
        with pytest.raises(type(error)):
            await mailbox.call("get", service, idempotent=True)

        assert service.calls == 1


async def test_work_that_may_not_be_repeated_is_not() -> None:
    async with downstream() as (mailbox, _):
        service = Service(DownstreamUnavailable())
        with pytest.raises(DownstreamUnavailable):
            await mailbox.call("recv", service, idempotent=False)

        assert service.calls == 1


async def test_late_work_is_cut_and_named() -> None:
    async with downstream(timeout_s=0.5) as (mailbox, inventory):
        service = Service("late", takes_s=60.0)
        with pytest.raises(Timeout) as cut:
            await mailbox.call("send", service, idempotent=False)

        assert (cut.value.op, cut.value.budget_s, cut.value.status) == ("rpc", 0.5, 504)
        assert service.under_way == 0
        assert inventory.metrics.value("io_timeouts_total", op="rpc") == 1


@pytest.mark.parametrize(("outer_s", "own_s", "left_s"), [(2.0, 5.0, 1.98), (9.0, 5.0, 5.0), (0.02, 5.0, 0.01)])
async def test_the_callers_deadline_less_a_reserve_bounds_the_work(outer_s: float, own_s: float, left_s: float) -> None:
    async with downstream(timeout_s=own_s) as (mailbox, _):
        service, now = Service("done"), asyncio.get_running_loop().time()
        with use_deadline(Deadline.after(outer_s, now)):
            await mailbox.call("get", service, idempotent=True)

        assert service.deadlines == [pytest.approx(left_s)]


async def test_a_long_poll_may_take_as_much_longer_as_it_says() -> None:
    async with downstream(timeout_s=2.0) as (mailbox, _):
        assert await mailbox.call("recv", Service("late", takes_s=20.0), idempotent=False, extra_s=20.0) == "late"


async def test_no_retry_begins_after_the_deadline() -> None:
    async with downstream(timeout_s=0.1) as (mailbox, _):
        service = Service(DownstreamUnavailable())
        with pytest.raises(DownstreamUnavailable):
            await mailbox.call("get", service, idempotent=True)

        assert service.calls == 2


async def test_a_storm_of_failures_does_not_become_a_storm_of_retries() -> None:
    never = BreakerPolicy(error_rate=0.0, timeouts_in_a_row=0)
    async with downstream(breaker=never) as (mailbox, _):
        service = Service(DownstreamUnavailable())
        for _ in range(300):
            with pytest.raises(DownstreamUnavailable):
                await mailbox.call("get", service, idempotent=True)

        assert service.calls - 300 <= 30 + 3 * 10 * 3


async def test_a_service_that_keeps_failing_is_left_alone_until_a_probe_succeeds() -> None:
    async with downstream(breaker=BreakerPolicy(samples_min=5, open_s=5.0)) as (mailbox, inventory):
        service = Service(*[DownstreamUnavailable()] * 5, "well")
        for _ in range(5):
            with pytest.raises(DownstreamUnavailable):
                await mailbox.call("send", service, idempotent=False)
        with pytest.raises(DownstreamUnavailable) as refused:
            await mailbox.call("send", service, idempotent=False)
        assert (service.calls, refused.value.facts["retry_after"], mailbox.healthy) == (5, 5, False)
        assert inventory.metrics.value("breaker_open", service="mailbox") == 1
        assert inventory.metrics.value("downstream_errors_total", service="mailbox", reason="breaker_open") == 1
        await asyncio.sleep(5.0)

        assert await mailbox.call("send", service, idempotent=False) == "well"
        assert mailbox.healthy


async def test_refusals_of_the_service_do_not_open_the_breaker() -> None:
    async with downstream(breaker=BreakerPolicy(samples_min=5)) as (mailbox, _):
        for _ in range(20):
            with pytest.raises(Conflict):
                await mailbox.call("send", Service(Conflict()), idempotent=False)

        assert mailbox.healthy


async def test_a_caller_without_patience_says_nothing_about_the_service() -> None:
    async with downstream(breaker=BreakerPolicy(timeouts_in_a_row=2)) as (mailbox, _):
        for _ in range(5):
            with use_deadline(Deadline.after(0.04, asyncio.get_running_loop().time())), pytest.raises(Timeout):
                await mailbox.call("get", Service("late", takes_s=9.0), idempotent=True)

        assert mailbox.healthy


# --- hedge


async def warm(mailbox: Downstream, calls: int = 40) -> None:
    for number in range(calls):
        takes_s = 0.03 if number < 20 else 0.01
        await mailbox.call("get", Service("quick", takes_s=takes_s), idempotent=True)


class SlowOnce:
    """The first call hangs, the second is quick; both say when they are cut."""

    def __init__(self) -> None:
        self.calls = 0
        self.cut = 0

    async def __call__(self) -> str:
        self.calls += 1
        try:
            await asyncio.sleep(60.0 if self.calls == 1 else 0.01)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        return f"answer {self.calls}"


async def test_late_work_is_asked_for_once_more_and_the_loser_is_cut() -> None:
    async with downstream(hedge=True) as (storage, inventory):
        await warm(storage)
        work = SlowOnce()

        assert await storage.call("get", work, idempotent=True) == "answer 2"
        await asyncio.sleep(0)
        assert (work.calls, work.cut) == (2, 1)
        assert inventory.metrics.value("hedges_total", service="mailbox", result="won") == 1


@pytest.mark.parametrize("why", ["off", "not idempotent", "shedding", "not warm"])
async def test_no_hedge_where_there_should_be_none(why: str) -> None:
    async with downstream(hedge=why != "off", timeout_s=1.0, shedding=lambda: why == "shedding") as (storage, _):
        await warm(storage, 10 if why == "not warm" else 40)
        work = SlowOnce()
        with pytest.raises(Timeout):
            await storage.call("get", work, idempotent=why != "not idempotent")
        await asyncio.sleep(0)

        assert (work.calls, work.cut) == (1, 1)


def test_a_cancelled_call_gives_its_place_back_at_whatever_step_the_cancel_comes() -> None:
    async def scenario(run: Run[tuple[int, int]]) -> tuple[int, int]:
        async with downstream(timeout_s=1.0) as (mailbox, _):
            service = Service(DownstreamUnavailable(), "well", takes_s=0.01)

            async def one() -> None:
                await mailbox.call("get", service, idempotent=True)

            run.start(one())
            await run.ended()
            return mailbox.places.in_use, service.under_way

    def nothing_is_held(outcome: tuple[int, int]) -> None:
        assert outcome == (0, 0)

    sweep(scenario, check=nothing_is_held)
