"""The broadcast: one ring, a cursor for each receiver; the publisher never waits for anyone.

A receiver that falls behind by more than the capacity loses the oldest messages and is told how many.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from penstock.kernel.errors import Closed, Lagging

T = TypeVar("T")

CAPACITY = 1024


class Broadcast(Generic[T]):
    """A bounded fan-out of messages. A receiver that lags loses some and has to ask for the state instead."""

    __slots__ = ("_closed", "_parked", "_receivers", "_ring", "capacity", "lagged", "name", "published")

    def __init__(self, name: str, *, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            message = f"broadcast {name}: capacity must be at least 1, not {capacity}"
            raise ValueError(message)
        self.name = name
        self.capacity = capacity
        self.published = 0  # number of messages ever; also the next place in the ring
        self.lagged = 0  # messages lost by slow receivers, all together
        self._ring: list[T | None] = [None] * capacity
        self._receivers: set[Receiver[T]] = set()
        self._parked: list[asyncio.Future[None]] = []
        self._closed = False

    @property
    def receivers(self) -> int:
        """Return how many receivers listen."""
        return len(self._receivers)

    @property
    def depth(self) -> int:
        """Return how far the slowest receiver is behind."""
        behind = max((self.published - receiver.cursor for receiver in self._receivers), default=0)
        return min(behind, self.capacity)

    def publish(self, message: T) -> int:
        """Hand a message to every receiver and return how many there are; never waits, never fails when open."""
        if self._closed:
            raise Closed(f"broadcast {self.name} is closed", queue=self.name)
        self._ring[self.published % self.capacity] = message
        self.published += 1
        if self._parked:
            self._wake_all()
        return len(self._receivers)

    def subscribe(self) -> Receiver[T]:
        """Start listening: the receiver sees what is published from now on."""
        receiver = Receiver(self)
        self._receivers.add(receiver)
        return receiver

    def close(self) -> None:
        """End the stream: receivers finish what they have not seen, then get `Closed`."""
        self._closed = True
        self._wake_all()

    def _wake_all(self) -> None:
        parked, self._parked = self._parked, []
        for waiter in parked:
            if not waiter.done():
                waiter.set_result(None)


class Receiver(Generic[T]):
    """One listener's place in the ring; belongs to one task."""

    __slots__ = ("_source", "cursor", "skipped")

    def __init__(self, source: Broadcast[T]) -> None:
        """Start at the newest message."""
        self._source = source
        self.cursor = source.published
        self.skipped = 0  # messages this receiver lost in its life

    async def recv(self) -> T:
        """Return the next message. If some were lost, first raise `Lagging` with their number, once."""
        source = self._source
        while self.cursor == source.published:
            if source._closed:
                raise Closed(f"broadcast {source.name} is closed", queue=source.name)
            await self._park()
        self._raise_if_lagging()
        message = source._ring[self.cursor % source.capacity]
        self.cursor += 1
        return message  # type: ignore[return-value]  # places before `published` are filled

    def _raise_if_lagging(self) -> None:
        source = self._source
        lost = source.published - self.cursor - source.capacity
        if lost > 0:
            self.cursor += lost
            self.skipped += lost
            source.lagged += lost
            raise Lagging(lost)

    async def _park(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        parked = self._source._parked
        parked.append(waiter)
        try:
            await waiter
        except BaseException:
            # Everyone is woken together, so there is no wake to pass on; only the place must not leak.
            if waiter in parked:
                parked.remove(waiter)
            raise

    def close(self) -> None:
        """Stop listening; the broadcast forgets this receiver."""
        self._source._receivers.discard(self)
