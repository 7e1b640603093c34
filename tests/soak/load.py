"""The load of a soak: what users do, all of it at once, and what each of them was promised."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from penstock.client import Client, Delivery, Reject, narrow
from penstock.kernel.errors import PenstockError

TOPIC = "soak"
PACE_S = 0.02
# Storage keeps a row for every object there is, so an endless number of new objects would look like a leak.
# The soak writes these contents again and again; their sizes take turns.
CONTENTS = 2_000
SIZES = (100, 4096, 200_000)


@dataclass
class Promises:
    """What was answered with success, and what came of it."""

    stored: set[str] = field(default_factory=set)
    handled: set[str] = field(default_factory=set)
    acked_twice: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)

    def refuse(self, error: PenstockError) -> None:
        """Count a refusal; while tasks are killed and the node is drained there are some."""
        self.refused[error.code] = self.refused.get(error.code, 0) + 1

    def lost(self) -> set[str]:
        """Name what was stored and never reached a handler."""
        return self.stored - self.handled


async def produce(client: Client, promises: Promises, tag: str) -> None:
    """Send messages; a key on every third. One that failed is sent again under its own idem_key."""
    while True:
        number = promises.done.get(tag, 0)
        name = f"{tag}-{number}"
        began = time.perf_counter()
        if number % 3 == 0:
            await client.mailbox.send(TOPIC, name, idem_key=name, key=f"k{number % 7}")
        else:
            await client.mailbox.send(TOPIC, name, idem_key=name)
        promises.seconds.append(time.perf_counter() - began)
        promises.stored.add(name)
        await _pause(promises, tag)


async def consume(client: Client, promises: Promises) -> None:
    """Handle messages; one in twenty is turned down once."""

    async def handle(delivery: Delivery) -> None:
        if delivery.attempt == 1 and random.random() < 0.05:
            raise Reject("not this time", delay_ms=50)
        promises.handled.add(delivery.payload.decode())
        promises.done["handled"] = promises.done.get("handled", 0) + 1

    await client.mailbox.run(TOPIC, handle, concurrency=8)


async def store(client: Client, promises: Promises) -> None:
    """Put objects of a bounded set of contents, and read them back."""
    while True:
        data = content(random.randrange(CONTENTS))
        stored = await client.storage.put(data)
        if await client.storage.get(stored.address) != data:
            promises.wrong.append(f"object {stored.address} came back changed")
        await _pause(promises, "objects")


def content(number: int) -> bytes:
    """Make the content of that number: always the same bytes."""
    return random.Random(number).randbytes(SIZES[number % len(SIZES)])


async def issue(client: Client, promises: Promises) -> None:
    """Issue a token, narrow it, and have it verified."""
    while True:
        issued = await client.passport.issue("worker", "svc-mailbox", ttl_s=60, caveats=["op=send,recv"])
        verified = await client.passport.verify(narrow(issued.token, f"topic={TOPIC}"))
        if not verified.ok:
            promises.wrong.append(f"a narrowed token is not good: {verified.reason}")
        await _pause(promises, "tokens")


async def look(client: Client, promises: Promises) -> None:
    """Ask what an operator asks."""
    while True:
        await client.mailbox.topics()
        await client.mailbox.peek(TOPIC, limit=5)
        await _pause(promises, "looks")


async def _pause(promises: Promises, what: str) -> None:
    promises.done[what] = promises.done.get(what, 0) + 1
    await asyncio.sleep(PACE_S * (0.5 + random.random()))


async def persist(work: Callable[[], Awaitable[None]], promises: Promises) -> None:
    """Go on after a refusal, as a program would."""
    while True:
        try:
            await work()
        except PenstockError as error:
            promises.refuse(error)
            await asyncio.sleep(0.1)
        except Exception as error:
            promises.wrong.append(f"{work} failed: {error!r}")
            raise
