"""A number of places, and a line of those who wait for one: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.kernel.errors import Busy


class PlaceLine:
    """Bounds how many calls are under way. Who finds no place waits, within its own deadline; a full line refuses.

    A place that is given back goes to the first in line in the same step, so nobody who comes later can take it first.
    """

    __slots__ = ("_in_use", "_waiting", "capacity", "name", "waiting_max")

    def __init__(self, name: str, capacity: int, *, waiting_max: int) -> None:
        self.name = name
        self.capacity = capacity
        self.waiting_max = waiting_max
        self._in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        """Tell whether the next caller has to wait."""
        return self._in_use >= self.capacity

    async def take(self) -> None:
        """Take a place, or wait for one; `Busy` when too many wait already."""
        if not self.full:
            self._in_use += 1
            return
        if len(self._waiting) >= self.waiting_max:
            raise Busy(f"Too many calls wait for {self.name}.", limit=self.name)
        await self._wait()

    async def _wait(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._forget(place)
            else:
                # The place came together with the cancel: it belongs to the next one.
                self.give()
            raise

    def give(self) -> None:
        """Give a place back: the first in line gets it."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._in_use -= 1

    def _forget(self, place: asyncio.Future[None]) -> None:
        """Take a waiter out of the line; `give` may have passed it over already."""
        if place in self._waiting:
            self._waiting.remove(place)
