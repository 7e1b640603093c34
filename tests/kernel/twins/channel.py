"""Channels with one planted bug each."""

from __future__ import annotations

import asyncio

from penstock.kernel.channel import Channel, Full
from penstock.kernel.errors import Busy


class Unbounded(Channel):
    """Buffers instead of refusing."""

    def try_send(self, item) -> None:
        self._items.append(item)


class CountsRefusalTwice(Channel):
    """Counts where it refuses, and once more where it was asked."""

    def try_send(self, item) -> None:
        try:
            super().try_send(item)
        except Busy:
            self.dropped += 1
            raise


class DropsNewest(Channel):
    """Keeps the oldest items when full."""

    def try_send(self, item) -> None:
        if self.full is Full.DROP_OLDEST and self.depth >= self.capacity:
            self.dropped += 1
            return
        super().try_send(item)


class LastInFirstOut(Channel):
    """Serves the newest item first."""

    async def recv(self):
        item = await super().recv()
        self._items.appendleft(item)
        return self._items.pop()


class ForgetsOnClose(Channel):
    """Throws away what was admitted."""

    def close(self) -> None:
        super().close()
        self._items.clear()


class WakesOneOnClose(Channel):
    """Leaves all receivers but the first asleep."""

    def close(self) -> None:
        others = list(self._receivers)[1:]
        for waiter in others:
            self._receivers.remove(waiter)
        super().close()


class PopsIntoFuture(Channel):
    """Hands the item over inside the waiter's future, where a cancel kills it."""

    def try_send(self, item) -> None:
        while self._receivers:
            waiter = self._receivers.popleft()
            if not waiter.done():
                waiter.set_result(item)
                return
        super().try_send(item)

    async def recv(self):
        if self._items or self._closed:
            return await super().recv()
        waiter = asyncio.get_running_loop().create_future()
        self._receivers.append(waiter)
        return await waiter


class KeepsTheWake(Channel):
    """A woken waiter that is cancelled takes its wake to the grave."""

    async def _park(self, waiters, blocked) -> None:
        while blocked():
            waiter = asyncio.get_running_loop().create_future()
            waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in waiters:
                    waiters.remove(waiter)


class GivesUpUncounted(Channel):
    """Forgets to count what a full channel turned away after a wait."""

    async def send(self, item) -> None:
        before = self.dropped
        try:
            await super().send(item)
        finally:
            self.dropped = before


class TakesWorkWhileSuspended(Channel):
    """Goes on admitting work that nobody will do."""

    def suspend(self) -> None:
        self._shut = False


class LetsSendersWaitWhileSuspended(Channel):
    """Refuses only newcomers; who waits already waits on."""

    def suspend(self) -> None:
        self._shut = True
