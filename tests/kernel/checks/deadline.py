"""What timeouts, locks, scopes and resources promise."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from penstock.kernel import lock as lock_module
from penstock.kernel.deadline import Deadline, current_deadline, use_deadline
from penstock.kernel.errors import Busy, Timeout
from penstock.kernel.lock import LockOrder
from penstock.kernel.metrics import Metrics
from penstock.testing.leaks import Leaks
from penstock.testing.session import run


def _now() -> float:
    return asyncio.get_running_loop().time()


def check_a_late_block_is_cut_with_its_name_and_budget(timeout) -> None:
    async def scenario() -> None:
        with pytest.raises(Timeout) as caught:
            async with timeout("kms_sign", 3.0):
                await asyncio.sleep(60)
        assert (caught.value.op, caught.value.budget_s) == ("kms_sign", 3.0)
        assert _now() == pytest.approx(1003.0)

    run(scenario())


def check_a_nested_timeout_is_clipped_by_the_outer_deadline(timeout) -> None:
    async def scenario() -> None:
        async def call() -> None:
            async with timeout("rpc", 5.0):
                deadline = current_deadline()
                assert deadline is not None
                assert deadline.remaining(_now()) == pytest.approx(2.0)
                await asyncio.sleep(60)

        with use_deadline(Deadline.after(2.0, _now())), pytest.raises(Timeout) as caught:
            await call()
        assert caught.value.budget_s == pytest.approx(2.0)
        assert _now() == pytest.approx(1002.0)
        assert current_deadline() is None

    run(scenario())


def check_a_cancel_from_outside_wins_over_the_timer(timeout) -> None:
    """Whether the cancel comes before, with or after the timer: the task ends cancelled."""

    async def block() -> str:
        with contextlib.suppress(Timeout):
            async with timeout("rpc", 1.0):
                await asyncio.sleep(60)
        return "went on"

    async def scenario(cancel_at_s: float) -> None:
        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(cancel_at_s, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    for cancel_at_s in (0.5, 1.0):
        run(scenario(cancel_at_s))


def check_a_cancel_in_the_same_step_as_the_timer_wins(timeout) -> None:
    async def scenario(first: str) -> None:
        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        if first == "cancel":
            asyncio.get_running_loop().call_at(1001.0 - 1e-12, task.cancel)
        else:
            asyncio.get_running_loop().call_at(1001.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    async def block() -> None:
        with contextlib.suppress(Timeout):
            async with timeout("rpc", 1.0):
                await asyncio.Event().wait()

    run(scenario("timer"))
    run(scenario("cancel"))


def check_a_timeout_leaves_the_task_uncancelled(timeout) -> None:
    async def scenario() -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(3):
            with contextlib.suppress(Timeout):
                async with timeout("rpc", 1.0):
                    await asyncio.sleep(60)
            assert task.cancelling() == 0
        await asyncio.sleep(1)

    run(scenario())


def check_cleanup_of_a_cancelled_task_may_use_a_timeout(timeout) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                async with timeout("flush", 1.0):
                    await asyncio.sleep(60)
            except Timeout:
                seen.append("flush timed out")

    async def scenario() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["flush timed out"]
        assert _now() == pytest.approx(1002.0)

    run(scenario())


def check_a_block_that_ends_in_time_is_left_alone(timeout) -> None:
    async def scenario() -> None:
        async with timeout("rpc", 1.0):
            await asyncio.sleep(0.5)
        await asyncio.sleep(5)

    run(scenario())


def check_locks_are_taken_in_rank_order(make) -> None:
    first, third = make("policy_meta", 1), make("counters", 3)
    with first, third:
        assert third.acquired == 1

    with pytest.raises(LockOrder), third, first:
        pytest.fail("a lower rank was taken while holding a higher one")
    with pytest.raises(LockOrder), first, make("state_meta", 1):
        pytest.fail("two locks of one rank have no order")


def check_a_lock_held_across_an_await_is_found(make) -> None:
    async def scenario() -> None:
        with make("counters", 3):
            await asyncio.sleep(0)

    lock_module.set_debug(on=True)
    with pytest.raises(Leaks, match="held across an await"):
        run(scenario())


def check_a_scope_is_bounded(make) -> None:
    async def scenario() -> None:
        scope = make("probe", 2, Metrics("svc-test"))
        for _ in range(2):
            scope.start(asyncio.sleep(60))
        with pytest.raises(Busy):
            scope.start(asyncio.sleep(60))
        assert (len(scope), scope.refused) == (2, 1)
        await scope.close()

    run(scenario())


def check_a_closed_scope_has_no_task_left(make) -> None:
    async def scenario() -> None:
        scope = make("probe", 4, Metrics("svc-test"))
        tasks = [scope.start(asyncio.sleep(60)) for _ in range(3)]
        await asyncio.sleep(1)
        assert await scope.close() == 0
        assert all(task.cancelled() for task in tasks)

    run(scenario())


def check_a_scope_counts_what_it_cut_once(make) -> None:
    async def scenario() -> None:
        metrics = Metrics("svc-test")
        scope = make("probe", 4, metrics)
        scope.start(asyncio.sleep(60))
        await asyncio.sleep(1)
        await scope.close()
        await scope.close()
        assert metrics.value("tasks_aborted_total", kind="probe") == 1
        assert metrics.value("tasks_spawned_total", kind="probe") == 1

    run(scenario())


def check_close_is_idempotent(make) -> None:
    async def scenario() -> None:
        resource = make()
        await resource.close()
        await resource.close()
        assert resource.released == 1

    run(scenario())


def check_a_dropped_resource_is_only_told_about(make) -> None:
    """Without close the leak is reported; __del__ itself releases, awaits and raises nothing."""
    released: list[str] = []

    async def scenario() -> None:
        make(released.append)

    with pytest.raises(Leaks, match=r"dropped without close|unclosed resource"):
        run(scenario())
    assert released == []
