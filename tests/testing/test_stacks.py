"""A suspended task is described by the lines it waits on, down to what it waits for."""

from __future__ import annotations

import asyncio

from penstock.testing.stacks import awaiting, describe, describe_all


async def inner(future: asyncio.Future[None]) -> None:
    await future


async def outer(future: asyncio.Future[None]) -> None:
    await inner(future)


async def test_the_chain_runs_from_the_task_to_the_future() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    task = loop.create_task(outer(future), name="worker")

    assert "outer" in awaiting(task.get_coro())[0]
    await asyncio.sleep(0)
    chain = awaiting(task.get_coro())
    assert [part.partition(" ")[0] for part in chain] == ["outer", "inner", "a"]
    assert "testing/test_stacks.py:" in chain[1]
    assert describe(task).startswith("worker: outer (")
    task.cancel()
    assert describe(task).startswith("worker: cancelling, outer (")


async def test_a_task_that_awaits_another_names_it() -> None:
    loop = asyncio.get_running_loop()
    first = loop.create_task(asyncio.sleep(1), name="first")

    async def follow() -> None:
        await first

    second = loop.create_task(follow(), name="second")
    await asyncio.sleep(0)

    assert describe(second).endswith("-> task 'first'")
    assert [line.split(":")[0].strip() for line in describe_all([second, first]).splitlines()] == ["first", "second"]
    await second


async def test_a_generator_that_awaits_is_part_of_the_chain() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    class Ticket:
        def __await__(self):
            yield from future.__await__()

    async def hold() -> None:
        await Ticket()

    task = loop.create_task(hold())
    await asyncio.sleep(0)

    assert any("Ticket.__await__" in part for part in awaiting(task.get_coro()))
    future.set_result(None)
    await task
