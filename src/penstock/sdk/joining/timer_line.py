"""Timers of one length that share a timer of the loop.

A program makes thousands of calls a second, each under a timeout of the same length, and nearly all end long before it.
A timer of the loop for each costs more than the rest of the call's bookkeeping. Timers of one length end in the order
they began, so they stand in a line: the loop has one timer, for the first of them, and a call that ends leaves it.
When the timer fires, it ends those that are due and is set for the first one that is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LineTimer:
    """One timer in the line."""

    __slots__ = ("_line", "at", "fire")

    def __init__(self, line: dict[LineTimer, None], at: float, fire: Callable[[], None]) -> None:
        self._line = line
        self.at = at
        self.fire = fire
        line[self] = None

    def cancel(self) -> None:
        """Leave the line: it will not fire."""
        self._line.pop(self, None)


class TimerLine:
    """Gives out timers of `seconds`; one of another length is the loop's own. Belongs to one loop."""

    __slots__ = ("_line", "_running", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # In the order they began; bounded by the calls under way.
        self._line: dict[LineTimer, None] = {}
        # The loop's timer. It is left alone when its timer leaves the line: it finds nothing due and is set again.
        self._running: asyncio.TimerHandle | None = None

    def call_later(self, delay: float, callback: Callable[[], None]) -> LineTimer | asyncio.TimerHandle:
        """Call back after so many seconds, unless the returned timer is cancelled first."""
        loop = asyncio.get_running_loop()
        if delay != self.seconds:
            # lint: allow PK006 the caller's own, which cancels it
            return loop.call_later(delay, callback)
        timer = LineTimer(self._line, loop.time() + delay, callback)
        if self._running is None:
            self._run(loop, timer.at)
        return timer

    def _run(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        # lint: allow PK006 one a line, taken off the loop by close()
        self._running = loop.call_at(at, self._fire_due)

    def _fire_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._running = None
        while self._line:
            first = next(iter(self._line))
            if first.at > loop.time():
                self._run(loop, first.at)
                return
            del self._line[first]
            first.fire()

    def close(self) -> None:
        """Take the loop's timer away; timers that are still in the line do not fire."""
        if self._running is not None:
            self._running.cancel()
            self._running = None
