"""aio-pika on a durable queue of RabbitMQ: persistent messages, publisher confirms, manual acks."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika

from benchmarks._app.app import PAYLOAD, TASKS, TOPIC


class RabbitApp:
    """One channel for sends and acks; a pushed consumer with a prefetch of 64, because that is RabbitMQ's own way."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: Any = None
        self._channel: Any = None
        self._queue: Any = None

    async def open(self) -> None:
        """Connect, and declare the queue."""
        self._connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self._port}/")
        self._channel = await self._connection.channel(publisher_confirms=True)
        await self._channel.set_qos(prefetch_count=TASKS)
        self._queue = await self._channel.declare_queue(TOPIC, durable=True)

    async def send(self) -> None:
        """Store one message durably: returns when it is confirmed."""
        message = aio_pika.Message(PAYLOAD, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, routing_key=TOPIC)

    async def settle(self) -> int:
        """Receive and ack; the ack has no answer in AMQP."""
        message = await self._queue.get(timeout=10)
        await message.ack()
        return 1

    async def consume(self, count: int) -> None:
        """Have messages pushed, and ack each."""
        done, seen = asyncio.Event(), 0

        async def handle(message: Any) -> None:
            nonlocal seen
            await message.ack()
            seen += 1
            if seen == count:
                done.set()

        tag = await self._queue.consume(handle)
        await asyncio.wait_for(done.wait(), 120)
        await self._queue.cancel(tag)

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()
