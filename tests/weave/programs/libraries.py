"""Bugs in libraries that others wrote, each shown by a small program, with a right twin beside it.

In each of them an item is given and a receiver is cancelled at the same instant. In the order in which the program
is written the cancel comes first and all is well, on the stock loop every time; in the other order something is lost.
"""

from __future__ import annotations

import asyncio
import contextlib

import anyio
import janus

# -- asyncio.Condition loses a notify when the notified waiter is cancelled (3.11 and 3.12) ---------------------


async def condition_loses_notify() -> None:
    condition = asyncio.Condition()
    items: list[str] = []

    async def take() -> str:
        async with condition:
            while not items:
                await condition.wait()
            return items.pop()

    async def stop(task: asyncio.Task[str]) -> None:
        await asyncio.sleep(1)
        task.cancel()

    async def give() -> None:
        await asyncio.sleep(1)
        async with condition:
            items.append("item")
            condition.notify()

    first, second = asyncio.create_task(take()), asyncio.create_task(take())
    await asyncio.gather(stop(first), give())
    await asyncio.wait({first})
    if first.cancelled():
        await second  # the item is there, and somebody waits for it
    second.cancel()


async def condition_loses_notify_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def stop(task: asyncio.Task[str]) -> None:
        await asyncio.sleep(1)
        task.cancel()

    async def give() -> None:
        await asyncio.sleep(1)
        await items.put("item")

    first, second = asyncio.create_task(items.get()), asyncio.create_task(items.get())
    await asyncio.gather(stop(first), give())
    await asyncio.wait({first})
    if first.cancelled():
        await second
    second.cancel()


# -- asyncio.wait_for swallows a cancel that arrives together with the result (3.11) ----------------------------


async def wait_for_swallows_cancel() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def worker() -> None:
        while True:
            await asyncio.wait_for(items.get(), 10)

    task = asyncio.create_task(worker())
    loop = asyncio.get_running_loop()
    loop.call_later(1, task.cancel)
    loop.call_later(1, items.put_nowait, "item")
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled(), "the worker was cancelled and lives on"


async def wait_for_swallows_cancel_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def worker() -> None:
        while True:
            async with asyncio.timeout(10):
                await items.get()

    task = asyncio.create_task(worker())
    loop = asyncio.get_running_loop()
    loop.call_later(1, task.cancel)
    loop.call_later(1, items.put_nowait, "item")
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled(), "the worker was cancelled and lives on"


# -- an anyio memory stream loses an item when its receiver is cancelled by asyncio -----------------------------


async def anyio_loses_item() -> None:
    send, receive = anyio.create_memory_object_stream[str](1)
    taken: list[str] = []

    async def take() -> None:
        taken.append(await receive.receive())

    task = asyncio.create_task(take())
    loop = asyncio.get_running_loop()
    loop.call_later(1, task.cancel)
    loop.call_later(1, send.send_nowait, "item")
    await asyncio.wait({task})
    await asyncio.sleep(1)
    if not taken:
        with contextlib.suppress(anyio.WouldBlock):
            taken.append(receive.receive_nowait())
    send.close()
    receive.close()
    assert taken == ["item"], "the item is gone"


async def anyio_loses_item_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)
    taken: list[str] = []

    async def take() -> None:
        taken.append(await items.get())

    task = asyncio.create_task(take())
    loop = asyncio.get_running_loop()
    loop.call_later(1, task.cancel)
    loop.call_later(1, items.put_nowait, "item")
    await asyncio.wait({task})
    await asyncio.sleep(1)
    if not taken:
        taken.append(items.get_nowait())
    assert taken == ["item"], "the item is gone"


# -- janus 2.0 strands an item beside a getter that waits, by way of asyncio.Condition --------------------------


async def janus_strands_item() -> None:
    queue: janus.Queue[str] = janus.Queue(1)
    items = queue.async_q

    async def stop(task: asyncio.Task[str]) -> None:
        await asyncio.sleep(1)
        task.cancel()

    async def give() -> None:
        await asyncio.sleep(1)
        await items.put("item")

    first, second = asyncio.create_task(items.get()), asyncio.create_task(items.get())
    await asyncio.gather(stop(first), give())
    await asyncio.wait({first, second}, timeout=5)
    stranded = not second.done() and items.qsize()
    second.cancel()
    await asyncio.wait({first, second})
    await queue.aclose()
    assert not stranded, "an item is there, and a getter waits beside it"


async def janus_strands_item_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def stop(task: asyncio.Task[str]) -> None:
        await asyncio.sleep(1)
        task.cancel()

    async def give() -> None:
        await asyncio.sleep(1)
        await items.put("item")

    first, second = asyncio.create_task(items.get()), asyncio.create_task(items.get())
    await asyncio.gather(stop(first), give())
    await asyncio.wait({first, second}, timeout=5)
    stranded = not second.done() and items.qsize()
    second.cancel()
    await asyncio.wait({first, second})
    assert not stranded, "an item is there, and a getter waits beside it"


# -- asyncio.TaskGroup swallows a cancel that arrives together with the failure of a child (3.11 and 3.12) --------


async def task_group_swallows_cancel() -> None:
    async def part() -> None:
        await asyncio.sleep(1)
        raise ValueError("a part failed")

    async def worker() -> None:
        while True:
            with contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(part())
            await asyncio.sleep(1)

    task = asyncio.create_task(worker())
    asyncio.get_running_loop().call_later(1, task.cancel)
    await asyncio.wait({task}, timeout=1.5)
    lives = not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert not lives, "the worker was cancelled and lives on"


async def task_group_swallows_cancel_right() -> None:
    async def part() -> None:
        await asyncio.sleep(1)
        raise ValueError("a part failed")

    async def worker() -> None:
        while True:
            one = asyncio.create_task(part())
            try:
                await asyncio.wait({one})
            finally:
                one.cancel()
                await asyncio.gather(one, return_exceptions=True)
            await asyncio.sleep(1)

    task = asyncio.create_task(worker())
    asyncio.get_running_loop().call_later(1, task.cancel)
    await asyncio.wait({task}, timeout=1.5)
    lives = not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert not lives, "the worker was cancelled and lives on"
