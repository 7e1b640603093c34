"""One Python program with 64 tasks: `program.py CLIENT PHASE PORT COUNT [TOKEN]`; prints what it took as JSON.

Clients: `penstock` (the SDK), `plain` (the SDK with joining left out), `redis` (redis.asyncio on streams). Phases:
`send`, one message a call; `tasks`, each task receives one message and acks it; `consumer`, the program receives as
many as it has free places, and a task a message acks it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

TASKS = 64
PAYLOAD = b"x" * 256
TOPIC = "bench"


class App(Protocol):
    """What a program does with its queue."""

    async def open(self) -> None:
        """Connect."""

    async def send(self) -> None:
        """Store one message durably."""

    async def settle(self) -> int:
        """Receive one message and ack it; returns how many came."""

    async def consume(self, count: int) -> None:
        """Receive and ack so many, 64 at once."""

    async def close(self) -> None:
        """Disconnect."""


class Penstock:
    """The SDK, as docs/sdk.md shows it."""

    def __init__(self, port: int, token: str, *, joined: bool) -> None:
        from penstock.client import connect

        self._client = connect(ports={"mailbox": port}, token=token)
        self._mailbox = self._client.mailbox
        if not joined:
            self._mailbox._mailbox = self._mailbox._mailbox._mailbox  # type: ignore[attr-defined]

    async def open(self) -> None:
        """Connect by a first call."""
        await self._mailbox.topics()

    async def send(self) -> None:
        """Store one message durably."""
        await self._mailbox.send(TOPIC, PAYLOAD)

    async def settle(self) -> int:
        """Receive and ack."""
        found = await self._mailbox.recv(TOPIC, visibility_ms=30_000)
        for message in found:
            await self._mailbox.ack(message)
        return len(found)

    async def consume(self, count: int) -> None:
        """Have a handler work on every message."""
        consumer, seen = self._mailbox.consume(TOPIC, concurrency=TASKS, wait_ms=1000), 0

        async def handle(_delivery: object) -> None:  # noqa: RUF029 - a handler
            nonlocal seen
            seen += 1
            if seen == count:
                consumer.stop()

        await consumer.run(handle)

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()


class Redis:
    """redis.asyncio on a stream with a group; what is acked is deleted, as in a queue."""

    def __init__(self, port: int) -> None:
        from redis.asyncio import Redis as Connection

        self._redis = Connection(port=port, max_connections=TASKS)

    async def open(self) -> None:
        """Make the stream and its group, once."""
        from redis.exceptions import ResponseError

        try:
            await self._redis.xgroup_create(TOPIC, "g", id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def send(self) -> None:
        """Store one message durably."""
        await self._redis.xadd(TOPIC, {"p": PAYLOAD})

    async def settle(self) -> int:
        """Receive and ack."""
        return sum([await self._done(name) for name in await self._names(1)])

    async def _names(self, count: int) -> list[bytes]:
        got = await self._redis.xreadgroup("g", "c", {TOPIC: ">"}, count=count)
        streams = got.values() if isinstance(got, dict) else [entries for _, entries in got]
        # The newer protocol wraps the entries of a stream once more.
        flat = (entries[0] if entries and isinstance(entries[0], list) else entries for entries in streams)
        return [name for entries in flat for name, _fields in entries]

    async def _done(self, name: bytes) -> int:
        async with self._redis.pipeline(transaction=False) as both:
            both.xack(TOPIC, "g", name)
            both.xdel(TOPIC, name)
            await both.execute()
        return 1

    async def consume(self, count: int) -> None:
        """Receive as many as there are free places; a task a message acks it."""
        working: set[asyncio.Task[int]] = set()
        while count:
            names = await self._names(min(count, TASKS - len(working)))
            count -= len(names)
            working |= {asyncio.create_task(self._done(name)) for name in names}
            _, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*working)

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.aclose()


@dataclass
class Shares:
    """The messages that are still to be done, for all tasks."""

    left: int

    async def work(self, act: Callable[[], Awaitable[int | None]]) -> None:
        """Do one after the other until nothing is left."""
        while self.left > 0:
            self.left -= 1
            if await act() == 0:
                raise SystemExit("nothing was received")


async def run(app: App, phase: str, count: int) -> None:
    """Do the whole work of a phase."""
    if phase == "consumer":
        await app.consume(count)
        return
    act: Callable[[], Awaitable[int | None]] = app.send if phase == "send" else app.settle
    shares = Shares(count)
    await asyncio.gather(*(shares.work(act) for _ in range(TASKS)))


async def main() -> dict[str, float]:
    """Run one phase, and measure the program's own time."""
    client, phase, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    app: App = Redis(port) if client == "redis" else Penstock(port, sys.argv[5], joined=client == "penstock")
    await app.open()
    began_at, cpu = time.perf_counter(), time.process_time()
    await run(app, phase, count)
    took_s, cpu_s = time.perf_counter() - began_at, time.process_time() - cpu
    await app.close()
    return {"per_s": count / took_s, "client_us": cpu_s / count * 1e6}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
