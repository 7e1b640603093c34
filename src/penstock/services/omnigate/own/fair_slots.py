"""The slots of a downstream. A call that finds none waits, and a slot that comes back goes to the tenants by turns.

With first come, first served, the tenant that sends most would fill the queue, and everybody else would wait behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Busy

if TYPE_CHECKING:
    from penstock.kernel.limiter import Limiter

CALLER: Final[ContextVar[Hashable]] = ContextVar("omnigate_caller", default="")
"""For whom the running request is worked on; set at the beginning of each."""

_Line = deque["asyncio.Future[None]"]


class FairSlots:
    """Counted slots with one queue for each tenant. Tenants take turns, and calls of one tenant keep their order."""

    __slots__ = ("_lines", "_places", "_waiters_max", "waiting")

    def __init__(self, places: Limiter, waiters_max: int) -> None:
        """Let at most so many wait; one more is refused at once."""
        self._places = places
        self._waiters_max = waiters_max
        self.waiting = 0
        # Tenants in the order of their next turn, none without somebody who waits.
        self._lines: dict[Hashable, _Line] = {}  # bounded by waiters_max

    def try_take(self) -> bool:
        """Take a slot if one is free and nobody waits."""
        return not self._lines and self._places.free > 0 and self._places.try_acquire_many()

    async def wait(self, key: Hashable) -> None:
        """Wait for a slot, under the caller's deadline. A cancelled wait loses no slot."""
        if self.waiting >= self._waiters_max:
            self._places.refused += 1
            raise Busy("Too many calls to this service wait already.", limit=self._places.name)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(key, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except BaseException:
            self._give_up(key, turn)
            raise

    def _give_up(self, key: Hashable, turn: asyncio.Future[None]) -> None:
        """Leave the queue, or pass on the slot that came just as the wait ended."""
        if turn.done() and not turn.cancelled():
            self.give()
            return
        line = self._lines.get(key)
        if line is None or turn not in line:
            return
        line.remove(turn)
        self.waiting -= 1
        if not line:
            del self._lines[key]

    def give(self) -> None:
        """Hand the slot to the next tenant that waits, or put it back."""
        while self._lines:
            key = next(iter(self._lines))
            line = self._lines.pop(key)
            turn = line.popleft()
            self.waiting -= 1
            if line:
                # Behind all the others that wait.
                self._lines[key] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._places.release()
