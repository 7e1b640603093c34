"""Small programs in plain asyncio with one concurrency bug each, and beside each its right twin.

They import nothing of penstock, so that they also run by `asyncio.run`.
"""

from __future__ import annotations

import asyncio
import contextlib

# -- a lost update: read, wait, write ---------------------------------------------------------------------------


async def lost_update() -> None:
    balance = 0

    async def deposit() -> None:
        nonlocal balance
        seen = balance
        await asyncio.sleep(0)
        balance = seen + 1

    await asyncio.gather(deposit(), deposit())
    assert balance == 2, f"balance {balance}"


async def lost_update_right() -> None:
    balance = 0
    lock = asyncio.Lock()

    async def deposit() -> None:
        nonlocal balance
        async with lock:
            seen = balance
            await asyncio.sleep(0)
            balance = seen + 1

    await asyncio.gather(deposit(), deposit())
    assert balance == 2, f"balance {balance}"


# -- crossed locks: two tasks take two locks in opposite order --------------------------------------------------


async def crossed_locks() -> None:
    left, right = asyncio.Lock(), asyncio.Lock()

    async def both(first: asyncio.Lock, second: asyncio.Lock) -> None:
        async with first:
            await asyncio.sleep(0)
            async with second:
                pass

    await asyncio.gather(both(left, right), both(right, left))


async def crossed_locks_right() -> None:
    left, right = asyncio.Lock(), asyncio.Lock()

    async def both(first: asyncio.Lock, second: asyncio.Lock) -> None:
        async with first:
            await asyncio.sleep(0)
            async with second:
                pass

    await asyncio.gather(both(left, right), both(left, right))


# -- check, then act: two tasks both find the seat free ---------------------------------------------------------


async def check_then_act() -> None:
    taken: list[str] = []

    async def book(who: str) -> None:
        if not taken:
            await asyncio.sleep(0)
            taken.append(who)

    async with asyncio.TaskGroup() as group:
        group.create_task(book("ann"))
        group.create_task(book("ben"))
    assert len(taken) == 1, f"the seat was sold to {sorted(taken)}"


async def check_then_act_right() -> None:
    taken: list[str] = []

    async def book(who: str) -> None:
        await asyncio.sleep(0)
        if not taken:
            taken.append(who)

    async with asyncio.TaskGroup() as group:
        group.create_task(book("ann"))
        group.create_task(book("ben"))
    assert len(taken) == 1, f"the seat was sold to {sorted(taken)}"


# -- a worker that breaks on stop and leaves an accepted job behind ---------------------------------------------


async def stop_loses_job() -> None:
    jobs: asyncio.Queue[int] = asyncio.Queue(2)
    stop = asyncio.Event()
    done: list[int] = []

    async def worker() -> None:
        while not stop.is_set():
            getting = asyncio.ensure_future(jobs.get())
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait({getting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if stop.is_set():
                getting.cancel()
                break
            done.append(getting.result())

    async def intake() -> None:
        for job in range(2):
            await jobs.put(job)
        stop.set()

    await asyncio.gather(worker(), intake())
    assert done == [0, 1], f"accepted 0 and 1, finished {done}"


async def stop_loses_job_right() -> None:
    jobs: asyncio.Queue[int | None] = asyncio.Queue(2)
    done: list[int] = []

    async def worker() -> None:
        while (job := await jobs.get()) is not None:
            done.append(job)

    async def intake() -> None:
        for job in range(2):
            await jobs.put(job)
        await jobs.put(None)

    await asyncio.gather(worker(), intake())
    assert done == [0, 1], f"accepted 0 and 1, finished {done}"


# -- an event is pulsed: whoever begins to wait after the pulse waits for ever ----------------------------------


async def missed_pulse() -> None:
    ready = asyncio.Event()

    async def waiter() -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        await ready.wait()

    async def signal() -> None:
        await asyncio.sleep(0)
        ready.set()
        ready.clear()

    await asyncio.gather(waiter(), signal())


async def missed_pulse_right() -> None:
    ready = asyncio.Event()

    async def waiter() -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        await ready.wait()

    async def signal() -> None:
        await asyncio.sleep(0)
        ready.set()

    await asyncio.gather(waiter(), signal())


# -- a task is left behind when another one fails first ---------------------------------------------------------


async def task_left_behind() -> None:
    async def slow() -> None:
        await asyncio.sleep(1)

    async def quick() -> None:
        raise OSError("no connection")

    with contextlib.suppress(OSError):
        await asyncio.gather(slow(), quick())


async def task_left_behind_right() -> None:
    async def slow() -> None:
        await asyncio.sleep(1)

    async def quick() -> None:
        raise OSError("no connection")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(quick())
    except* OSError:
        pass


# -- a timer against a result: both are due at the same instant -------------------------------------------------


async def timer_against_result() -> None:
    paid: list[str] = []

    async def pay() -> None:
        await asyncio.sleep(1)
        paid.append("paid")

    try:
        async with asyncio.timeout(1):
            await pay()
        answer = "paid"
    except TimeoutError:
        answer = "not paid"
    assert (answer == "paid") == bool(paid), f"said {answer!r}, but the ledger holds {paid}"
    assert answer == "paid", "the payment was in time, and was refused"


async def timer_against_result_right() -> None:
    paid: list[str] = []

    async def pay() -> None:
        await asyncio.sleep(1)
        paid.append("paid")

    try:
        async with asyncio.timeout(1):
            await pay()
        answer = "paid"
    except TimeoutError:
        answer = "not paid"
    assert (answer == "paid") == bool(paid), f"said {answer!r}, but the ledger holds {paid}"


# -- a semaphore that is released once too often no longer bounds -----------------------------------------------


async def semaphore_bound() -> None:
    places = asyncio.Semaphore(1)
    inside = peak = 0

    async def visit(after_s: float, patience_s: float) -> None:
        nonlocal inside, peak
        await asyncio.sleep(after_s)
        try:
            async with asyncio.timeout(patience_s):
                await places.acquire()
        except TimeoutError:
            places.release()  # by a visitor who never got in
            return
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(3)
        inside -= 1
        places.release()

    await asyncio.gather(visit(0, 9), visit(0, 1), visit(2, 9))
    assert peak == 1, f"{peak} visitors at once"


async def semaphore_bound_right() -> None:
    places = asyncio.Semaphore(1)
    inside = peak = 0

    async def visit(after_s: float, patience_s: float) -> None:
        nonlocal inside, peak
        await asyncio.sleep(after_s)
        try:
            async with asyncio.timeout(patience_s):
                await places.acquire()
        except TimeoutError:
            return
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(3)
        inside -= 1
        places.release()

    await asyncio.gather(visit(0, 9), visit(0, 1), visit(2, 9))
    assert peak == 1, f"{peak} visitors at once"


# -- right in asyncio's own order, wrong in another: a loop is free to choose --------------------------------------


async def leans_on_order() -> None:
    seen: list[str] = []

    async def note(name: str) -> None:
        seen.append(name)

    await asyncio.gather(note("first"), note("second"))
    assert seen == ["first", "second"], f"in the order {seen}"
