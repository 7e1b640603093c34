"""Programs that weave cannot explore, or not wholly; it has to say so and must not hang."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import socket
import sys
import threading
import time

counter = 0


async def two_tasks_then(value: object) -> object:
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    return value


async def reads_wall_clock() -> None:
    await asyncio.sleep(0 if time.time_ns() % 2 else 1)
    await two_tasks_then(time.time())


async def throws_dice() -> object:
    return await two_tasks_then(random.random())


async def opens_socket() -> None:
    with socket.socket():
        await asyncio.sleep(0)


async def connects() -> None:
    await asyncio.open_connection("localhost", 9)


async def starts_thread() -> None:
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()


async def sleeps_for_real() -> None:
    time.sleep(60)


async def never_yields() -> None:
    await asyncio.sleep(0)
    while True:
        pass


async def too_big() -> None:
    async def busy(number: int) -> None:
        for turn in range(50):
            await asyncio.sleep(0)
            seen.append((number, turn))

    seen: list[tuple[int, int]] = []
    await asyncio.gather(*(busy(number) for number in range(6)))


async def polls_for_ever() -> None:
    async def poll() -> None:
        while True:
            await asyncio.sleep(0)

    await asyncio.gather(poll(), poll())


async def ticks_for_ever() -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    await asyncio.gather(tick(), tick())


async def polls_until_set() -> None:
    done: list[int] = []

    async def poll() -> None:
        while not done:
            await asyncio.sleep(0)

    async def finish() -> None:
        await asyncio.sleep(0)
        done.append(1)

    await asyncio.gather(poll(), finish())


async def counts_globally() -> int:
    global counter

    async def count() -> None:
        global counter
        await asyncio.sleep(0)
        counter += 1

    await asyncio.gather(count(), count())
    return counter


async def holds_c_state() -> str:
    digest = hashlib.sha256()

    async def feed(data: bytes) -> None:
        await asyncio.sleep(0)
        digest.update(data)

    await asyncio.gather(feed(b"a"), feed(b"b"))
    return digest.hexdigest()[:8]


async def works_in_thread() -> list[str]:
    seen: list[str] = []

    async def outside() -> None:
        seen.append(await asyncio.to_thread(lambda: "thread"))

    async def inside() -> None:
        await asyncio.sleep(0)
        seen.append("loop")

    await asyncio.gather(outside(), inside())
    return seen


async def prints() -> None:
    print("a word from the program")
    await two_tasks_then(None)


async def tidies_up_loudly() -> None:
    async def wait() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            print("closing")
            raise OSError("in finally")

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    assert task.done()


async def swallows_everything() -> None:
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(0)
            while True:
                pass


async def waits_for_a_lock_for_ever() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


async def asks_to_exit() -> None:
    await two_tasks_then(None)
    sys.exit(3)


async def recurses() -> None:
    def again() -> None:
        again()

    await two_tasks_then(None)
    again()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


async def raises_what_cannot_be_printed() -> None:
    await two_tasks_then(None)
    raise Unprintable


class Shy:
    def __getattribute__(self, name: str) -> object:
        if name == "__dict__":
            raise RuntimeError("do not look")
        return object.__getattribute__(self, name)


async def holds_an_object_that_must_not_be_looked_at() -> object:
    shy = Shy()
    await two_tasks_then(shy)
    return id(shy) > 0


async def nests_deeply() -> bool:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    await two_tasks_then(nested)
    return bool(nested)


async def starts_a_process() -> None:
    await asyncio.create_subprocess_exec("true")


def not_async() -> None:
    """No program at all."""


async def wants_arguments(number: int) -> None:
    await asyncio.sleep(number)
