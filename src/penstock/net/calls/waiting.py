"""How the tasks of a call wait for its connection: until a callback changed something, each time under a deadline."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Timeout
from penstock.kernel.metrics import Counter


@dataclass(slots=True)
class ClientTimeouts:
    """What the connections of a client share: how long a wait may last, and what counts the waits that lasted longer.

    A reload may change the seconds while connections are open.
    """

    write_s: float
    read_s: float
    write_timeouts: Counter
    read_timeouts: Counter


class CallSignal:
    """Wakes whoever waits on one connection: at most two tasks, one that sends the body and one that reads the answer.

    Whoever wakes up looks at the state again, so a wake that came for the other one does no harm and none is lost.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self, op: str, seconds: float, breaches: Counter) -> None:
        """Sleep until a callback has changed something, or raise `Timeout` and count it."""
        try:
            async with timeout(op, seconds):
                await self._woken()
        except Timeout:
            breaches.value += 1
            raise

    async def _woken(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Wake both."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
