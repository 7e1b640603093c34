"""Notices that the loop stood still while leases were held: nobody could renew them meanwhile.

A handler does that which computes or waits without `await`. Whoever sleeps on the loop says when its next turn is due;
when the turn comes late by a good part of a lease, one line says so, and what to do. It is said once a minute at most.
"""

from __future__ import annotations

from typing import Final

from penstock.sdk.telling.lines import tell
from penstock.wire.plain_words import age_text

# Of a lease: how late a turn may be, and how far apart turns are, so that a third of a lease is always noticed.
_PART: Final = 6
# A busy machine is as late as this now and then.
_LATE_S_MIN: Final = 0.5
_APART_S: Final = 60.0


class LoopStalls:
    """What the next turn of the loop is compared with."""

    __slots__ = ("_due_at", "_told_at")

    def __init__(self) -> None:
        self._due_at = float("inf")
        self._told_at = float("-inf")

    def expect(self, due_at: float) -> None:
        """Expect a turn of the loop at this instant, at the latest."""
        self._due_at = due_at

    def turn(self, now: float, lease_ms: int) -> None:
        """Take a turn: tell if it comes late, in parts of a lease. What was told is over, and not told again."""
        late_s = now - self._due_at
        if late_s < max(_LATE_S_MIN, lease_ms / 1000 / _PART):
            return
        self._due_at = now
        if now - self._told_at < _APART_S:
            return
        self._told_at = now
        line = (
            f"the event loop stood still for {age_text(late_s)} or longer, and no lease could be renewed meanwhile "
            f"(a lease lasts {age_text(lease_ms / 1000)}): most likely a handler computes or waits without `await`. "
            "Run such work in a thread, `await asyncio.to_thread(work, ...)`, or use penstock.client.sync, whose "
            "handlers are plain functions (docs/sdk.md, Blocking work)"
        )
        tell("loop.stood_still", line, late_s=round(late_s, 3), lease_ms=lease_ms)


def tick_s(lease_ms: int) -> float:
    """Return how long to sleep at most, so that a stall is noticed."""
    return lease_ms / 1000 / _PART
