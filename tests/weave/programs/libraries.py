"""Bugs in libraries that others wrote, each shown by a small program, with a right twin beside it."""

from __future__ import annotations

import asyncio

import anyio
import janus

# -- asyncio.Condition loses a notify when the notified waiter is cancelled (3.11 and 3.12) ---------------------


async def condition_loses_notify() -> None:
    condition = asyncio.Condition()
    items: list[str] = []
    taken: list[str] = []

    async def take() -> None:
        async with condition:
            while not items:
                await condition.wait()
            taken.append(items.pop())

    first, second = asyncio.create_task(take()), asyncio.create_task(take())
    await asyncio.sleep(1)
    async with condition:
        items.append("item")
        condition.notify()
    first.cancel()
    await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    if first.cancelled():
        await second  # the item is there, and somebody waits for it


async def condition_loses_notify_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)
    taken: list[str] = []

    async def take() -> None:
        taken.append(await items.get())

    first, second = asyncio.create_task(take()), asyncio.create_task(take())
    await asyncio.sleep(1)
    items.put_nowait("item")
    first.cancel()
    await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    if first.cancelled():
        await second
    else:
        second.cancel()


# -- asyncio.wait_for swallows a cancel that arrives together with the result (3.11) ----------------------------


async def wait_for_swallows_cancel() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def worker() -> None:
        while True:
            await asyncio.wait_for(items.get(), 10)

    task = asyncio.create_task(worker())
    await asyncio.sleep(1)
    items.put_nowait("item")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled(), "the worker was cancelled and lives on"


async def wait_for_swallows_cancel_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def worker() -> None:
        while True:
            async with asyncio.timeout(10):
                await items.get()

    task = asyncio.create_task(worker())
    await asyncio.sleep(1)
    items.put_nowait("item")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled(), "the worker was cancelled and lives on"


# -- an anyio memory stream loses an item when its receiver is cancelled by asyncio -----------------------------


async def anyio_loses_item() -> None:
    send, receive = anyio.create_memory_object_stream[str](1)
    taken: list[str] = []

    async def take() -> None:
        taken.append(await receive.receive())

    task = asyncio.create_task(take())
    await asyncio.sleep(1)
    send.send_nowait("item")
    task.cancel()
    await asyncio.wait({task})
    if not taken:
        try:
            taken.append(receive.receive_nowait())
        except anyio.WouldBlock:
            pass
    send.close()
    receive.close()
    assert taken == ["item"], "the item is gone"


async def anyio_loses_item_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)
    taken: list[str] = []

    async def take() -> None:
        taken.append(await items.get())

    task = asyncio.create_task(take())
    await asyncio.sleep(1)
    items.put_nowait("item")
    task.cancel()
    await asyncio.wait({task})
    if not taken:
        taken.append(items.get_nowait())
    assert taken == ["item"], "the item is gone"


# -- janus 2.0 strands an item beside a getter that waits, by way of asyncio.Condition --------------------------


async def janus_strands_item() -> None:
    queue: janus.Queue[str] = janus.Queue(1)
    items = queue.async_q

    async def take() -> str:
        return await items.get()

    first, second = asyncio.create_task(take()), asyncio.create_task(take())
    await asyncio.sleep(1)
    await items.put("item")
    first.cancel()
    await asyncio.wait({first, second}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({first, second}, timeout=5)
    stranded = not second.done() and items.qsize()
    for task in (first, second):
        task.cancel()
    await asyncio.wait({first, second})
    await queue.aclose()
    assert not stranded, "an item is there, and a getter waits beside it"


async def janus_strands_item_right() -> None:
    items: asyncio.Queue[str] = asyncio.Queue(1)

    async def take() -> str:
        return await items.get()

    first, second = asyncio.create_task(take()), asyncio.create_task(take())
    await asyncio.sleep(1)
    await items.put("item")
    first.cancel()
    await asyncio.wait({first, second}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({first, second}, timeout=5)
    stranded = not second.done() and items.qsize()
    for task in (first, second):
        task.cancel()
    await asyncio.wait({first, second})
    assert not stranded, "an item is there, and a getter waits beside it"
