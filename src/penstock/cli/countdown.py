"""The line that shows a drain on a terminal: which services it waits for, and how long each may still take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

_STEP_S: Final = 0.5
# A service that is told to end does so in a moment: then it is looked at again.
_SOON_S: Final = 0.05
_CLEAR_LINE: Final = "\r\x1b[K"


class Countdown:
    """Redraws its line twice a second from the first service that drains until the end."""

    def __init__(
        self, say: Callable[[str], None], limit_s: Callable[[], float], waiting: Callable[[], Mapping[str, float]]
    ) -> None:
        """Write by `say`; the writer passes everything through `around`, which keeps the line below it.

        The node is given up after `limit_s`; `waiting` names the services that drain, each with its own limit, which
        counts from when it is named first.
        """
        self._say = say
        self._limit_s = limit_s
        self._waiting = waiting
        self._until: float | None = None
        self._service_until: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # What is to stand on the terminal's last line, and whether something does.
        self._line = ""
        self._drawn = False

    def draw(self) -> None:
        """Draw the line now and twice a second until the end. The first call starts the clock."""
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + self._limit_s()
        self._draw(loop, self._until, _SOON_S)

    def _draw(self, loop: asyncio.AbstractEventLoop, until: float, again_s: float) -> None:
        self._stop()
        self._line = f"{self._told(loop.time(), until)}; Ctrl-C again cuts it short"
        self._say(_CLEAR_LINE)
        # lint: allow PK006 cancelled by end, or gone with the loop
        self._timer = loop.call_later(again_s, self._draw, loop, until, _STEP_S)

    def _told(self, now: float, until: float) -> str:
        """Name each service with the limit that comes first: its own, or that of the whole node."""
        waiting = self._waiting()
        if not waiting:
            return f"draining, {_whole(until - now)} s left"
        for name, limit_s in waiting.items():
            self._service_until.setdefault(name, now + limit_s)
        left = (f"{name} ({_whole(min(until, self._service_until[name]) - now)} s left)" for name in waiting)
        return f"draining: {', '.join(left)}"

    def around(self, lines: bytes) -> bytes:
        """Return `text` with the codes that clear the line before it and draw it again below.

        Nobody else draws the line, and one thread writes: it is never left behind, nor written into.
        """
        line, cleared = self._line, _CLEAR_LINE if self._drawn else ""
        self._drawn = bool(line)
        return cleared.encode() + lines + line.encode()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Take the line away."""
        self._stop()
        self._timer = None
        self._line = ""
        self._say(_CLEAR_LINE)


def _whole(left_s: float) -> int:
    return max(0, round(left_s))
