"""psycopg on a table: take with SKIP LOCKED and a deadline, delete when done; every commit is synced."""

from __future__ import annotations

import asyncio

from psycopg_pool import AsyncConnectionPool

from benchmarks._app.app import PAYLOAD, TASKS

_TAKE = (
    "UPDATE q SET vt = now() + interval '60s' WHERE id IN (SELECT id FROM q WHERE vt <= now() ORDER BY id "
    "LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id, p"
)


class PostgresApp:
    """A connection a task, from a pool."""

    def __init__(self, port: int) -> None:
        self._pool = AsyncConnectionPool(
            f"host=127.0.0.1 port={port} user=postgres dbname=postgres",
            min_size=TASKS,
            max_size=TASKS,
            open=False,
            kwargs={"autocommit": True, "prepare_threshold": 1},
        )

    async def open(self) -> None:
        """Connect all, so that no measured call does."""
        await self._pool.open(wait=True, timeout=60)

    async def send(self) -> None:
        """Store one message durably."""
        async with self._pool.connection() as connection:
            await connection.execute("INSERT INTO q(p) VALUES (%s)", (PAYLOAD.decode(),))

    async def settle(self) -> int:
        """Receive and ack; a take may find its rows locked by the others, and is repeated."""
        while not (names := await self._take(1)):  # noqa: ASYNC110 - the rows are there, and locked for a moment
            await asyncio.sleep(0)
        return sum([await self._done(name) for name in names])

    async def _take(self, count: int) -> list[int]:
        async with self._pool.connection() as connection:
            return [row[0] for row in await (await connection.execute(_TAKE, (count,))).fetchall()]

    async def _done(self, name: int) -> int:
        async with self._pool.connection() as connection:
            await connection.execute("DELETE FROM q WHERE id = %s", (name,))
        return 1

    async def consume(self, count: int) -> None:
        """Receive as many as there are free places; a task a message acks it."""
        working: set[asyncio.Task[int]] = set()
        while count:
            names = await self._take(min(count, TASKS - len(working)))
            count -= len(names)
            working |= {asyncio.create_task(self._done(name)) for name in names}
            if working:
                _, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*working)

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()
