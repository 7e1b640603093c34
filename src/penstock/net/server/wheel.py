"""The deadlines of many connections on one timer: a timer for each request would cost more than the request.

Time is cut into slots of 50 ms. A connection lies in the slot of its deadline. Moving the deadline later only changes a
number: when the slot comes up, the wheel finds that it is not due yet and puts the connection into its new slot.
"""

from __future__ import annotations

import heapq
from contextvars import Context
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio

TICK_S: Final = 0.05
NEVER: Final = float("inf")


class Timed(Protocol):
    """Something with a deadline that moves."""

    due: float  # when to be looked at; owned by the timed thing
    slot: int  # the slot it lies in, 0 for none; owned by the wheel

    def expire(self, now: float) -> None:
        """Act on what is due, and set the next `due`."""
        ...


class TimerWheel:
    """Slots of one tick each. Moving a deadline later costs nothing; the slot is corrected when it comes up."""

    __slots__ = ("_closed", "_context", "_loop", "_order", "_passed", "_slots", "_timer", "_timer_slot")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the loop's time, so that virtual time moves it too; no timer runs while nothing is watched."""
        self._loop = loop
        # A context of its own: the timer acts for all, and must not run under the deadline of the code that armed it.
        self._context = Context()
        self._slots: dict[int, set[Timed]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_slot = 0
        self._passed = 0
        self._closed = False

    def watch(self, timed: Timed) -> None:
        """Make sure `timed` is looked at when it is due; call this when `due` moved to an earlier slot."""
        if timed.due == NEVER or self._closed:
            return
        # Rounded up: nothing is ever looked at before it is due. What is overdue waits for the next tick, so that
        # a thing that stays due cannot keep the wheel turning in one place.
        slot = max(int(timed.due / TICK_S) + 1, self._passed + 1)
        if timed.slot:
            self.forget(timed)
        timed.slot = slot
        waiting = self._slots.get(slot)
        if waiting is None:
            self._slots[slot] = {timed}
            heapq.heappush(self._order, slot)
            if self._timer is None or slot < self._timer_slot:
                self._arm(slot)
        else:
            waiting.add(timed)

    def forget(self, timed: Timed) -> None:
        """Take `timed` out, because it is gone or moves to an earlier slot."""
        waiting = self._slots.get(timed.slot)
        if waiting is not None:
            waiting.discard(timed)
        timed.slot = 0

    def close(self) -> None:
        """Stop the timer and forget everything; watching something afterwards does not start it again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._slots.clear()
        self._order.clear()

    def _arm(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_slot = slot
        self._timer = self._loop.call_at(slot * TICK_S, self._turn, context=self._context)

    def _turn(self) -> None:
        now = self._loop.time()
        try:
            # What is watched meanwhile arms no timer: its slot is later than the one that the timer was for.
            while self._order and self._order[0] * TICK_S <= now + TICK_S / 10:
                slot = self._passed = heapq.heappop(self._order)
                for timed in self._slots.pop(slot):
                    self._look(timed, now)
        finally:
            self._timer = None
            if self._order:
                self._arm(self._order[0])

    def _look(self, timed: Timed, now: float) -> None:
        timed.slot = 0
        if timed.due <= now:
            timed.expire(now)
        if timed.slot == 0:
            self.watch(timed)
