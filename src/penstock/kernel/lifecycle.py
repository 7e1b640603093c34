"""Phases of a service's life, the signal its tasks observe, and what a stop request means.

Running -> Draining -> Stopped, or Draining -> Aborting -> Stopped.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable
from types import TracebackType
from typing import Final

from penstock.kernel.watch import Watch

# A second SIGINT counts as impatience only this long after the first: a terminal may send it twice.
IMPATIENCE_S: Final = 1.0


class Phase(enum.Enum):
    """Where a service is in its life."""

    RUNNING = "running"
    DRAINING = "draining"
    ABORTING = "aborting"
    STOPPED = "stopped"

    def follows(self, other: Phase) -> bool:
        """Tell whether this phase comes after the other."""
        order = list(Phase)
        return order.index(self) > order.index(other)


class Shutdown:
    """What one task sees of the end: first "stop taking work", then, for listeners, "close"."""

    __slots__ = ("_phase", "until")

    def __init__(self, name: str) -> None:
        self._phase: Watch[Phase] = Watch(f"shutdown:{name}", Phase.RUNNING)
        # When the drain is over, on the monotonic clock: what is not done by then is cut off.
        self.until = math.inf

    @property
    def phase(self) -> Phase:
        """Return the phase this task is asked to be in."""
        return self._phase.value

    @property
    def draining(self) -> bool:
        """Tell whether the task was asked to stop taking work."""
        return self._phase.value is not Phase.RUNNING

    def request(self, phase: Phase, until: float = math.inf) -> None:
        """Move on; only whoever drains calls this. Repeats change nothing, and there is no way back."""
        if phase.follows(self._phase.value):
            self.until = min(self.until, until)
            self._phase.set(phase)

    async def wait(self) -> None:
        """Wait until asked to drain; returns at once if that was before."""
        while not self.draining:
            await self._phase.wait()

    def on_drain(self, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` when a drain or close is asked for; returns its undo. For loops with more to wait for."""
        return self._phase.on_change(call)

    async def stopped(self) -> None:
        """Wait until asked to close: everything behind this task has ended."""
        while self._phase.value is not Phase.STOPPED:
            await self._phase.wait()

    async def sleep(self, seconds: float) -> bool:
        """Sleep, but return early (True) when asked to drain: the only sleep of a background loop."""
        if self.draining:
            return True
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        timer = loop.call_later(seconds, woken.set)
        receiver = self._phase.on_change(woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()
            receiver()
        return self.draining


class until_drain:  # noqa: N801 - reads as a clause at the call site: `async with until_drain(request.shutdown):`
    """Wait inside a block no longer than until a drain begins.

    Then the block is cancelled and left without an error, and what follows it answers for a wait that brought nothing.
    A drain that began before ends the block at its first suspension. A cancel from outside wins, as with `timeout`.
    """

    __slots__ = ("_cancels_before", "_forget", "_over", "_shutdown", "_task", "_wakes")

    def __init__(self, shutdown: Shutdown) -> None:
        """Hear of the drain from this signal."""
        self._shutdown = shutdown
        self._wakes: asyncio.Handle | None = None
        self._over = False

    async def __aenter__(self) -> None:
        """Listen for the drain."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._task, self._cancels_before = task, task.cancelling()
        self._forget = self._shutdown.on_drain(self._end)
        if self._shutdown.draining:
            self._wakes = asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        """Stop listening; swallow our own cancel, and only ours."""
        self._forget()
        if self._wakes is not None:
            self._wakes.cancel()
        if not self._over:
            return False
        ours_alone = self._task.uncancel() <= self._cancels_before
        return ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError)


class StopRequests:
    """Turns signals into a verdict, purely: the first drains, a later impatient SIGINT cuts the deadline."""

    __slots__ = ("_first_sigint_at", "asked")

    def __init__(self) -> None:
        self.asked = False
        self._first_sigint_at: float | None = None

    def receive(self, signal: str, now: float) -> Phase | None:
        """Return the phase to move to, or None for a repeat that changes nothing."""
        if signal == "SIGINT" and self._first_sigint_at is not None:
            impatient = now - self._first_sigint_at >= IMPATIENCE_S
            return Phase.ABORTING if impatient else None
        if signal == "SIGINT":
            self._first_sigint_at = now
        if self.asked:
            return None
        self.asked = True
        return Phase.DRAINING
