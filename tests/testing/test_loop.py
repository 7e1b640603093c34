"""The virtual loop keeps asyncio's order, jumps over idle time, and names who waits when nothing can happen."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from penstock.testing import session
from penstock.testing.loop import Deadlock, Livelock, VirtualLoop, task_of


@pytest.fixture
def loop():
    loop = VirtualLoop()
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.settle()
    loop.close()


async def interleaved(log: list[str]) -> None:
    """Mix what the two loops must order alike: tasks, callbacks, futures, timers that are due at once."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    async def worker(name: str) -> None:
        for turn in range(3):
            log.append(f"{name}{turn}")
            await asyncio.sleep(0)
        await future
        log.append(f"{name} woke")

    workers = [loop.create_task(worker(name)) for name in "abc"]
    loop.call_soon(log.append, "soon")
    loop.call_later(0, log.append, "later")
    loop.call_soon(lambda: loop.call_soon(log.append, "soon after"))
    await asyncio.sleep(0.01)
    future.set_result(None)
    await asyncio.wait(workers)


def test_the_order_of_steps_is_that_of_the_stock_loop(loop) -> None:
    virtual: list[str] = []
    stock: list[str] = []
    loop.run_until_complete(interleaved(virtual))
    asyncio.run(interleaved(stock))

    assert virtual == stock


async def test_an_hour_passes_in_milliseconds() -> None:
    loop = asyncio.get_running_loop()
    began, real = loop.time(), time.perf_counter()
    for _ in range(3600):
        await asyncio.sleep(1)

    assert loop.time() - began == 3600
    assert time.perf_counter() - real < 60


async def test_time_stands_still_while_anything_is_ready() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    fired: list[float] = []
    loop.call_later(1, lambda: fired.append(loop.time()))
    for _ in range(100):
        await asyncio.sleep(0)

    assert fired == []
    await asyncio.sleep(2)
    assert fired == [began + 1]


async def test_timers_of_one_instant_run_in_the_order_they_were_asked_for() -> None:
    log: list[int] = []
    for number in range(50):
        asyncio.get_running_loop().call_later(1, log.append, number)
    await asyncio.sleep(2)

    assert log == list(range(50))


async def test_cancelled_timers_never_fire_and_do_not_hold_time_back() -> None:
    loop = asyncio.get_running_loop()
    log: list[int] = []
    timers = [loop.call_later(1 + number, log.append, number) for number in range(500)]
    for timer in timers[:499]:
        timer.cancel()
    await asyncio.sleep(1000)

    assert log == [499]


async def test_advance_is_a_slow_step_and_due_timers_follow() -> None:
    loop = asyncio.get_running_loop()
    fired: list[float] = []
    loop.call_later(1, lambda: fired.append(loop.time()))
    began = loop.time()
    loop.advance(5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert fired == [began + 5]
    with pytest.raises(ValueError, match="forward"):
        loop.advance(-1)


async def waits_for_ever(event: asyncio.Event) -> None:
    await event.wait()


def test_a_deadlock_names_every_task_and_its_line(loop) -> None:
    async def main() -> None:
        event = asyncio.Event()
        other = loop.create_task(waits_for_ever(event), name="other")
        await asyncio.wait([other])

    with pytest.raises(Deadlock) as caught:
        loop.run_until_complete(main())
    lines = str(caught.value).splitlines()

    assert len(lines) == 3
    assert any("other: waits_for_ever (testing/test_loop.py:" in line and "Event.wait" in line for line in lines)
    assert any("main (testing/test_loop.py:" in line for line in lines)


def test_a_task_that_polls_without_time_passing_is_a_livelock() -> None:
    loop = VirtualLoop(steps_limit=1000)

    async def poll() -> None:
        while loop.is_running():  # noqa: ASYNC110 the planted bug
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="poll"):
        session.run(poll(), loop)


def test_many_steps_are_no_livelock_while_time_passes() -> None:
    loop = VirtualLoop(steps_limit=1000)

    async def patient() -> int:
        for _ in range(2000):
            await asyncio.sleep(0.001)
        return loop.steps

    assert session.run(patient(), loop) > 2000


def test_two_runs_take_the_same_steps_and_name_their_tasks_alike() -> None:
    def trace() -> list[str]:
        names: list[str] = []

        def observe(handle: asyncio.Handle) -> None:
            task = task_of(handle)
            names.append(task.get_name() if task else "callback")

        async def child(number: int) -> None:
            await asyncio.sleep(number)
            if number == 3:
                raise ValueError

        async def main() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for number in (1, 3, 5, 5, 5, 5, 5, 5):
                        group.create_task(child(number))
            except* ValueError:
                names.append("aborted")

        session.run(main(), VirtualLoop(observer=observe))
        return names

    first, second = trace(), trace()

    assert first == second
    assert "task-9" in first


def test_a_chooser_decides_which_ready_handle_runs() -> None:
    async def main(log: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for name in "abc":
            loop.call_soon(log.append, name)
        loop.call_soon(log.append, "cancelled").cancel()
        await asyncio.sleep(1)

    fifo: list[str] = []
    lifo: list[str] = []
    session.run(main(fifo), VirtualLoop())
    session.run(main(lifo), VirtualLoop(chooser=lambda ready: len(ready) - 1))

    assert fifo == ["a", "b", "c"]
    assert lifo == ["c", "b", "a"]


def test_a_chooser_sees_each_choice_with_the_live_handles_only() -> None:
    widths: list[int] = []

    def choose(ready) -> int:
        widths.append(len(ready))
        assert not any(handle.cancelled() for handle in ready)
        return 0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        handles = [loop.call_soon(widths.append, 0) for _ in range(3)]
        handles[1].cancel()
        await asyncio.sleep(1)

    session.run(main(), VirtualLoop(chooser=choose))

    assert widths[:5] == [1, 2, 0, 1, 0]


async def test_a_thread_answers_before_time_moves() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    timed_out = False
    try:
        async with asyncio.timeout(0.001):
            answer = await loop.run_in_executor(None, lambda: threading.Event().wait(0.02) or "done")
    except TimeoutError:
        timed_out = True

    assert not timed_out
    assert answer == "done"
    assert loop.time() == began


def test_a_stuck_thread_is_left_behind_when_a_timer_waits() -> None:
    loop = VirtualLoop(thread_patience_s=0.01)
    release = threading.Event()

    async def main() -> bool:
        call = loop.run_in_executor(None, release.wait, 60)
        try:
            async with asyncio.timeout(3600):
                await asyncio.shield(call)
        except TimeoutError:
            loop.thread_patience_s = 60.0  # it is released now, and answers as soon as the machine lets it
            release.set()
            return await call
        return False

    assert session.run(main(), loop)


def test_a_process_that_stood_still_has_not_lost_its_patience_with_its_threads() -> None:
    class Overslept(threading.Event):
        """The first wait is over at once, and no thread had its turn: so it looks when a process was stopped."""

        slept = False

        def wait(self, timeout: float | None = None) -> bool:
            if self.slept:
                return super().wait(timeout)
            self.slept = True
            return False

    loop = VirtualLoop()
    loop._woken = Overslept()

    async def main() -> str:
        async with asyncio.timeout(1):
            return await loop.run_in_executor(None, lambda: threading.Event().wait(0.02) or "done")

    assert session.run(main(), loop) == "done"
    assert loop._woken.slept


def test_a_thread_that_never_answers_is_a_deadlock_with_its_name() -> None:
    loop = VirtualLoop(thread_patience_s=0.01)

    async def main() -> None:
        work = loop.external("the pool")
        try:
            await loop.create_future()
        finally:
            work.done()

    with pytest.raises(Deadlock, match="the pool"):
        session.run(main(), loop)


async def test_a_foreign_thread_wakes_the_loop() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    work = loop.external("foreign thread")

    def answer() -> None:
        loop.call_soon_threadsafe(future.set_result, 7)
        work.done()

    thread = threading.Timer(0.01, answer)
    thread.start()

    assert await future == 7
    thread.join()


async def test_signals_are_delivered_by_the_test() -> None:
    loop = asyncio.get_running_loop()
    got: list[str] = []
    loop.add_signal_handler(signal.SIGTERM, got.append, "term")
    loop.deliver_signal(signal.SIGTERM)
    await asyncio.sleep(0)

    assert got == ["term"]
    assert loop.remove_signal_handler(signal.SIGTERM)
    assert not loop.remove_signal_handler(signal.SIGTERM)


async def test_sockets_are_refused_with_advice() -> None:
    with pytest.raises(RuntimeError, match="real_loop"):
        await asyncio.open_connection("127.0.0.1", 1)
    with pytest.raises(RuntimeError, match=r"penstock\.testing\.transport"):
        await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
