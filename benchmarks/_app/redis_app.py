"""redis.asyncio on a stream with a group."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from benchmarks._app.app import PAYLOAD, TASKS, TOPIC


class RedisApp:
    """redis.asyncio on a stream with a group; what is acked is deleted, as in a queue."""

    def __init__(self, port: int) -> None:
        self._redis = Redis(port=port, max_connections=TASKS)

    async def open(self) -> None:
        """Make the stream and its group, once."""
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
