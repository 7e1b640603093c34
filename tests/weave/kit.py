"""What the tests of weave share: the programs by name, and random programs to compare strategies on."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

from penstock import weave
from tests.weave.programs import libraries, races

WRONG = {
    "lost_update": "assertion",
    "crossed_locks": "deadlock",
    "check_then_act": "assertion",
    "stop_loses_job": "assertion",
    "missed_pulse": "deadlock",
    "task_left_behind": "leak",
    "timer_against_result": "assertion",
    "semaphore_bound": "assertion",
    "condition_loses_notify": "deadlock",
    "wait_for_swallows_cancel": "assertion",
    "anyio_loses_item": "assertion",
    "janus_strands_item": "assertion",
    "task_group_swallows_cancel": "assertion",
}
"""The programs with a bug, and how each of them fails."""


def program(name: str):
    """Find a program by its name."""
    return getattr(races, name, None) or getattr(libraries, name)


OPERATIONS = ("add", "double", "sleep", "set", "wait", "lock", "put", "get", "cancel", "read", "timeout")


def random_program(seed: int):
    """Make two or three tasks that do random things to tracked shared state; the outcome is all they can tell."""
    dice = random.Random(seed)
    scripts = tuple(
        tuple((dice.choice(OPERATIONS), dice.randrange(2)) for _ in range(dice.randint(1, 3)))
        for _ in range(dice.randint(2, 3))
    )
    return partial(_random_program, scripts)


async def _random_program(scripts: tuple[tuple[tuple[str, int], ...], ...]) -> object:  # noqa: C901 a case each
    cells = (weave.Cell(0), weave.Cell(0))
    log: weave.Cell[tuple[Any, ...]] = weave.Cell(())
    tasks: weave.Cell[tuple[asyncio.Task[None], ...]] = weave.Cell(())
    event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue(1)

    async def do(who: int, operation: str, place: int) -> None:
        cell = cells[place]
        match operation:
            case "add":
                seen = cell.value
                await asyncio.sleep(0)
                cell.value = seen + 1
            case "double":
                cell.value *= 2
            case "sleep":
                await asyncio.sleep(place)
            case "set":
                event.set()
            case "wait":
                await event.wait()
            case "lock":
                async with lock:
                    await asyncio.sleep(0)
                    cell.value += 3
            case "put":
                await queue.put(who)
            case "get":
                cell.value = 10 + await queue.get()
            case "cancel":
                tasks.value[(who + 1 + place) % len(tasks.value)].cancel()
            case "read":
                log.value = (*log.value, (who, cell.value))
            case _:
                try:
                    async with asyncio.timeout(place):
                        await asyncio.sleep(1)
                        cell.value += 5
                except TimeoutError:
                    cell.value += 7

    async def follow(who: int, script: tuple[tuple[str, int], ...]) -> None:
        for operation, place in script:
            await do(who, operation, place)

    for who, script in enumerate(scripts):
        tasks.value = (*tasks.value, asyncio.create_task(follow(who, script)))
    done, pending = await asyncio.wait(tasks.value, timeout=10)
    for task in pending:
        task.cancel()
    ended = sorted((task.get_name(), task.cancelled()) for task in done)
    return [cell.value for cell in cells], log.value, ended, len(pending)
