"""The SDK, as docs/sdk.md shows it."""

from __future__ import annotations

from benchmarks._app.app import PAYLOAD, TASKS, TOPIC
from penstock.client import connect


class PenstockApp:
    """The SDK, as docs/sdk.md shows it."""

    def __init__(self, port: int, token: str, *, joined: bool) -> None:
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
