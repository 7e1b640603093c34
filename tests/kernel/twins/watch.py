"""Watches and broadcasts with one planted bug each."""

from __future__ import annotations

import asyncio

from penstock.kernel.broadcast import Broadcast, Receiver
from penstock.kernel.errors import Lagging
from penstock.kernel.watch import Watch, WatchReceiver


class ForgetsTheWriteBefore(Watch):
    """A receiver takes whatever was written before it came as seen."""

    def subscribe(self) -> WatchReceiver:
        receiver = super().subscribe()
        receiver._seen = self.version
        return receiver


class WaitsForTheNextWrite(Watch):
    """A receiver waits for a write to come instead of comparing versions."""

    def subscribe(self) -> WatchReceiver:
        return _Late(self)


class _Late(WatchReceiver):
    async def changed(self):
        await self._source.wait()
        return self._source.value


class WakesOne(Watch):
    """Wakes the first waiter only."""

    def set(self, value) -> None:
        for waiter in list(self._parked)[1:]:
            del self._parked[waiter]
        super().set(value)


class KeepsTheDead(Watch):
    """A cancelled waiter stays in the list for ever."""

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._parked[waiter] = None
        await waiter


class _Twin(Broadcast):
    receiver: type[Receiver]

    def subscribe(self) -> Receiver:
        receiver = self.receiver(self)
        self._receivers.add(receiver)
        return receiver


class _CountsEvents(Receiver):
    def _raise_if_lagging(self) -> None:
        before = self._source.lagged
        try:
            super()._raise_if_lagging()
        except Lagging:
            self._source.lagged = before + 1
            raise


class CountsEventsNotMessages(_Twin):
    """Counts how often somebody lagged instead of how much was lost."""

    receiver = _CountsEvents


class _LagsTooSoon(Receiver):
    def _raise_if_lagging(self) -> None:
        if self._source.published - self.cursor == self._source.capacity:
            self.cursor += 1
            self._source.lagged += 1
            raise Lagging(1)
        super()._raise_if_lagging()


class LosesOneAtCapacity(_Twin):
    """Off by one: a full ring counts as overrun."""

    receiver = _LagsTooSoon


class _SharedCursor(Receiver):
    async def recv(self):
        message = await super().recv()
        for other in self._source._receivers:
            other.cursor = max(other.cursor, self.cursor)
        return message


class MovesEveryCursor(_Twin):
    """One receiver's progress moves the others: they lose without being told."""

    receiver = _SharedCursor


class EndsAtOnce(Broadcast):
    """Closing throws away what was not seen yet."""

    def close(self) -> None:
        for receiver in self._receivers:
            receiver.cursor = self.published
        super().close()


class _ClaimsEarly(Receiver):
    async def recv(self):
        cursor, self.cursor = self.cursor, self.cursor + 1
        while cursor == self._source.published:
            await self._park()
        return self._source._ring[cursor % self._source.capacity]


class ClaimsBeforeItWaits(_Twin):
    """Moves the cursor before the wait: a cancel skips a message."""

    receiver = _ClaimsEarly
