"""What a person at a terminal sees of a drain: how long it may still take, and for whom it waits, on one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

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
        waiting = ", ".join(self._waiting())
        self._say(f"{_CLEAR_LINE}draining, {left_s} s left{f': {waiting}' if waiting else ''}")
        self._timer = loop.call_later(_STEP_S, self.draw)  # lint: allow PK006 cancelled by end, or gone with the loop

    def above(self, stream: TextIO, text: str) -> None:
        """Write to the same terminal without breaking the line: it is taken away and drawn again below."""
        drawn = self._timer is not None
        stream.write(f"{_CLEAR_LINE}{text}" if drawn else text)
        stream.flush()
        if drawn:
            # A thread cannot draw; the next step does.
            with suppress(RuntimeError):
                self.draw()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Take the line away."""
        self._stop()
        self._timer = None
        self._say(_CLEAR_LINE)


class Above:
    """A stream for log lines that share the terminal with a countdown."""

    def __init__(self, countdown: Countdown, stream: TextIO) -> None:
        """Write to `stream`, above the countdown."""
        self._countdown = countdown
        self._stream = stream

    def write(self, text: str) -> None:
        """Write whole lines, as a log handler does."""
        self._countdown.above(self._stream, text)

    def flush(self) -> None:
        """Have nothing left to write: each line went out at once."""
