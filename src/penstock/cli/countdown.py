"""What a person at a terminal sees of a drain: how long it may still take, and for whom it waits, on one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_STEP_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


class Countdown:
    """Redraws its line twice a second from the first service that drains until the end."""

    def __init__(
        self, say: Callable[[str], None], limit_s: Callable[[], float], waiting: Callable[[], list[str]]
    ) -> None:
        """Write by `say`; the node is given up after `limit_s`; `waiting` names the services that are not done."""
        self._say = say
        self._limit_s = limit_s
        self._waiting = waiting
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def draw(self) -> None:
        """Draw now, and again until the end; the clock starts with the first time."""
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + self._limit_s()
        self._stop()
        left_s = max(0, round(self._until - loop.time()))
        self._say(f"{_CLEAR_LINE}draining, {left_s} s left: {', '.join(self._waiting())}")
        self._timer = loop.call_later(_STEP_S, self.draw)  # lint: allow PK006 cancelled by end, or gone with the loop

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Take the line away."""
        self._stop()
        self._say(_CLEAR_LINE)
