"""Thread pools: bounded, never joined, and honest about what is stuck."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from penstock.kernel import pool as pool_module
from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import Busy, Timeout
from penstock.kernel.pool import Pool
from penstock.kernel.resource import open_resources

pytestmark = pytest.mark.real_loop


class Gated:
    """A call that runs until the test lets it go."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.gate = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.running.release()
        self.gate.wait(60)
        return "done"


async def _until(condition) -> None:
    """Wait on the real clock for what a thread will bring about."""
    async with asyncio.timeout(25):
        while not condition():  # noqa: ASYNC110 a thread sets no asyncio event
            await asyncio.sleep(0.001)


async def _late(pool: Pool, op: str, seconds: float, call: Gated) -> str:
    """Call, and let time go on only when a thread has begun: until then the loop and its timers stand still."""
    caller = asyncio.create_task(pool.run(op, seconds, call))
    await asyncio.sleep(0)
    assert call.running.acquire(timeout=25)
    return await caller


async def test_a_call_runs_on_a_named_daemon_thread_and_its_result_comes_back() -> None:
    async with Pool("sqlite", threads=2, capacity=2) as pool:
        thread = await pool.run("query", 60.0, threading.current_thread)
        assert await pool.run("query", 60.0, divmod, 7, 3) == (2, 1)

    assert thread.daemon
    assert thread.name.startswith("sqlite")


async def test_a_full_pool_is_busy_and_says_so_at_once() -> None:
    call = Gated()
    async with Pool("files", threads=1, capacity=1) as pool:
        tasks = [asyncio.create_task(pool.run("read", 60.0, call)) for _ in range(2)]
        await asyncio.sleep(0)
        assert pool.depth == 2
        with pytest.raises(Busy):
            await pool.run("read", 60.0, call)
        assert pool.refused == 1
        call.gate.set()
        assert [await task for task in tasks] == ["done", "done"]
        assert pool.depth == 0


async def test_a_late_call_times_out_at_once_and_keeps_its_slot_until_it_returns() -> None:
    call = Gated()
    async with Pool("files", threads=1, capacity=0) as pool:
        with pytest.raises(Timeout, match="fsync"):
            await _late(pool, "fsync", 0.02, call)
        assert (pool.stuck, pool.depth) == (1, 1)
        with pytest.raises(Busy):
            await pool.run("fsync", 60.0, call)
        call.gate.set()
        await _until(lambda: pool.depth == 0)
        assert pool.stuck == 0
        assert await pool.run("fsync", 60.0, str, 1) == "1"


async def test_a_call_that_never_began_gives_its_place_back_and_never_runs() -> None:
    call, waiting = Gated(), Gated()
    async with Pool("files", threads=1, capacity=1) as pool:
        first = asyncio.create_task(pool.run("read", 60.0, call))
        await _until(lambda: call.calls == 1)
        with pytest.raises(Timeout):
            await pool.run("read", 0.02, waiting)
        assert (pool.stuck, pool.depth) == (0, 1)
        call.gate.set()
        assert await first == "done"
        assert await pool.run("read", 60.0, str, 2) == "2"

    assert waiting.calls == 0


async def test_a_cancelled_caller_leaves_its_running_call_in_its_slot() -> None:
    call = Gated()
    async with Pool("files", threads=1, capacity=0) as pool:
        caller = asyncio.create_task(pool.run("read", 60.0, call))
        await _until(lambda: call.calls == 1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (pool.stuck, pool.depth) == (1, 1)
        call.gate.set()
        await _until(lambda: pool.stuck == 0)


async def test_places_add_up_however_callers_and_threads_race() -> None:
    """Timeouts of a few microseconds meet threads that are just beginning: no slot is lost or given back twice."""
    async with Pool("files", threads=2, capacity=30) as pool:
        for round_s in (0.0, 1e-6, 1e-5, 1e-4, 5e-4) * 4:
            calls = [asyncio.create_task(pool.run("race", round_s, sum, range(50))) for _ in range(20)]
            await asyncio.wait(calls)
            assert all(isinstance(call.exception(), Timeout | None) for call in calls)
            await _until(lambda: pool.depth == 0)
        assert pool.stuck == 0


async def test_the_callers_deadline_clips_a_call() -> None:
    call = Gated()
    async with Pool("files", threads=1, capacity=0) as pool:
        with use_deadline(Deadline.after(0.02, asyncio.get_running_loop().time())), pytest.raises(Timeout) as caught:
            await _late(pool, "read", 60.0, call)
        call.gate.set()
        await _until(lambda: pool.stuck == 0)

    assert caught.value.budget_s <= 0.02 + 1e-6  # the instant is a float: min(own, remaining) is its difference


@pytest.mark.parametrize(("error", "told"), [(KeyError("planted"), KeyError), (StopIteration(3), RuntimeError)])
async def test_an_error_of_the_call_reaches_the_caller_and_frees_the_slot(error, told) -> None:
    def fail() -> None:
        raise error

    async with Pool("files", threads=1, capacity=0) as pool:
        with pytest.raises(told):
            await pool.run("read", 60.0, fail)
        assert pool.depth == 0


async def test_an_error_nobody_waits_for_is_not_reported_as_lost() -> None:
    gate = threading.Event()

    def fail() -> None:
        gate.wait(60)
        raise KeyError("planted")

    async with Pool("files", threads=1, capacity=0) as pool:
        with pytest.raises(Timeout):
            await pool.run("read", 0.02, fail)
        gate.set()
        await _until(lambda: pool.depth == 0)


async def test_close_is_idempotent_and_waits_for_no_thread() -> None:
    call = Gated()
    pool = Pool("files", threads=1, capacity=0)
    with pytest.raises(Timeout):
        await _late(pool, "read", 0.02, call)
    assert "pool:files" in open_resources()
    await pool.close()
    await pool.close()

    assert "pool:files" not in open_resources()
    call.gate.set()
    await _until(lambda: pool.stuck == 0)


async def test_a_caller_that_gives_up_just_before_the_call_begins_stops_it(monkeypatch) -> None:
    """The thread has the call in hand but has not begun it: it must not run in a place that was given back."""
    taken, gate, calls = threading.Event(), threading.Event(), []
    run_call = pool_module._run

    def run_late(future, call) -> None:
        def late():
            taken.set()
            gate.wait(60)
            return call()

        run_call(future, late)

    monkeypatch.setattr(pool_module, "_run", run_late)
    async with Pool("files", threads=1, capacity=0) as pool:
        caller = asyncio.create_task(pool.run("write", 0.05, calls.append, "too late"))
        await asyncio.sleep(0)
        assert taken.wait(25)  # the loop stands still meanwhile: its timer comes after the thread
        with pytest.raises(Timeout):
            await caller
        assert (pool.depth, pool.stuck) == (0, 0)
        gate.set()
        assert await pool.run("read", 60.0, str, 1) == "1"

    assert calls == []


class Missing(Exception):
    """What the call below raises."""


async def test_an_error_of_a_call_is_freed_without_the_collector() -> None:
    pool = Pool("leaving", threads=1, capacity=2)
    kept: list[weakref.ref[Missing]] = []

    def fail() -> None:
        error = Missing("no such thing")
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(Missing):
                await pool.run("fail", 5.0, fail)
        await pool.run("next", 5.0, lambda: None)

        await _until(lambda: [each() for each in kept] == [None, None, None])
    finally:
        gc.enable()
        await pool.close()
