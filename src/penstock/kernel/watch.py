"""The watch: one value, last write wins, and nobody misses that it changed.

A receiver compares versions, so a write before it subscribed, or between two of its looks, is still seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Watch(Generic[T]):
    """A value with a version; used for shutdown and configuration."""

    __slots__ = ("_calls", "_parked", "name", "value", "version")

    def __init__(self, name: str, initial: T) -> None:
        """Start at version 0 with the initial value."""
        self.name = name
        self.value = initial
        self.version = 0
        # Dictionaries for their order: two runs of the same code wake in the same order.
        self._parked: dict[asyncio.Future[None], None] = {}
        self._calls: dict[Callable[[], None], None] = {}

    def set(self, value: T) -> None:
        """Replace the value and wake whoever waits for a change."""
        self.value = value
        self.version += 1
        for waiter in self._parked:
            if not waiter.done():
                waiter.set_result(None)
        self._parked.clear()
        for call in tuple(self._calls):
            call()

    def on_change(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` run inside every later `set`; returns what takes it off again."""
        self._calls[call] = None
        return lambda: self._calls.pop(call, None)

    def subscribe(self) -> WatchReceiver[T]:
        """Return a receiver that has seen the initial value and nothing written since."""
        return WatchReceiver(self)

    async def wait(self) -> None:
        """Wait for the next write; cancelling leaves nothing behind."""
        waiter = asyncio.get_running_loop().create_future()
        self._parked[waiter] = None
        try:
            await waiter
        finally:
            self._parked.pop(waiter, None)


class WatchReceiver(Generic[T]):
    """One task's view of a watch: remembers which version it saw last."""

    __slots__ = ("_seen", "_source")

    def __init__(self, source: Watch[T]) -> None:
        """Take only the initial version as seen: a write before this moment, a shutdown say, is not missed."""
        self._source = source
        self._seen = 0

    @property
    def value(self) -> T:
        """Return the latest value, without marking it as seen."""
        return self._source.value

    async def changed(self) -> T:
        """Return the value once it is newer than the last one seen here; returns at once if it already is."""
        while self._source.version == self._seen:
            await self._source.wait()
        self._seen = self._source.version
        return self._source.value
