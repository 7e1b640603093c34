"""What every program does with its queue, and with what."""

from __future__ import annotations

from typing import Final, Protocol

TASKS: Final = 64
PAYLOAD: Final = b"x" * 256
TOPIC: Final = "bench"


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
