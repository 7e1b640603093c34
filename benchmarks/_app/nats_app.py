"""nats-py on a JetStream work queue with a pull consumer; the server syncs every write."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

from benchmarks._app.app import PAYLOAD, TASKS, TOPIC


class NatsApp:
    """Publishes wait for the stream's ack, acks for the server's answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: Any = None
        self._stream: Any = None
        # A pull subscription serves one caller at a time.
        self._pulls: asyncio.Queue[Any] = asyncio.Queue()

    async def open(self) -> None:
        """Connect, and make the stream and its consumer, which is nothing the second time."""
        self._connection = await nats.connect(f"nats://127.0.0.1:{self._port}")
        self._stream = self._connection.jetstream()
        await self._stream.add_stream(StreamConfig("S", subjects=[TOPIC], retention=RetentionPolicy.WORK_QUEUE))
        config = ConsumerConfig(max_ack_pending=20_000, ack_wait=60)
        for _ in range(TASKS):
            self._pulls.put_nowait(await self._stream.pull_subscribe(TOPIC, durable="C", config=config))

    async def send(self) -> None:
        """Store one message durably."""
        await self._stream.publish(TOPIC, PAYLOAD)

    async def settle(self) -> int:
        """Receive and ack."""
        messages = await self._fetch(1)
        for message in messages:
            await message.ack_sync(timeout=5)
        return len(messages)

    async def _fetch(self, count: int) -> list[Any]:
        pull = self._pulls.get_nowait()
        try:
            return list(await pull.fetch(count, timeout=10))
        finally:
            self._pulls.put_nowait(pull)

    async def consume(self, count: int) -> None:
        """Receive as many as there are free places; a task a message acks it."""
        working: set[asyncio.Task[object]] = set()
        while count:
            messages = await self._fetch(min(count, TASKS - len(working)))
            count -= len(messages)
            working |= {asyncio.create_task(message.ack_sync(timeout=5)) for message in messages}
            _, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*working)

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()
