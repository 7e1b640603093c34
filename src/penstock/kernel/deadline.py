"""Deadlines: an instant carried in a context variable; every nested timeout is min(own, remaining)."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from penstock.kernel.errors import Timeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token


class Deadline:
    """An instant on the monotonic clock after which the answer is of no use."""

    __slots__ = ("at", "budget_s", "since")

    def __init__(self, at: float, budget_s: float, since: float | None = None) -> None:
        """Set the instant and remember the budget it was made from, for the error that names it."""
        self.at = at
        self.budget_s = budget_s
        # Since when the caller waits. A deadline that is derived from another one keeps the other's.
        self.since: float = at - budget_s if since is None else since

    @classmethod
    def after(cls, seconds: float, now: float) -> Deadline:
        """Make a deadline `seconds` from `now`."""
        return cls(now + seconds, seconds)

    def remaining(self, now: float) -> float:
        """Return the seconds left, never below zero."""
        left = self.at - now
        return max(left, 0.0)

    def expired(self, now: float) -> bool:
        """Tell whether the instant has passed."""
        return now >= self.at

    def clip(self, seconds: float, now: float) -> float:
        """Return min(own, remaining): what a nested call may take."""
        return min(seconds, self.remaining(now))

    def __repr__(self) -> str:
        """Show the instant; useful in a task's stack."""
        return f"Deadline(at={self.at:.3f}, budget_s={self.budget_s:g})"


_current: ContextVar[Deadline | None] = ContextVar("penstock_deadline", default=None)


def current_deadline() -> Deadline | None:
    """Return the deadline the running code is under, if any."""
    return _current.get()


class use_deadline:  # noqa: N801 - reads as a verb at the call site: `with use_deadline(job.deadline):`
    """Enter a deadline for a block; an outer, earlier one stays in force."""

    __slots__ = ("_deadline", "_token")

    def __init__(self, deadline: Deadline | None) -> None:
        """Hold the deadline until the block is entered."""
        self._deadline = deadline
        self._token: Token[Deadline | None] | None = None

    def __enter__(self) -> Deadline | None:
        """Make the earlier of outer and own the current one."""
        outer, own = _current.get(), self._deadline
        if own is None or (outer is not None and outer.at < own.at):
            own = outer
        self._token = _current.set(own)
        return own

    def __exit__(self, *_exc: object) -> None:
        """Restore the outer deadline."""
        if self._token is not None:
            _current.reset(self._token)


class no_deadline:  # noqa: N801 - reads as a clause at the call site: `with no_deadline():`
    """Leave the caller's deadline behind for a block: what is made in it outlives the caller.

    A loop runs the callbacks of a connection in the context it was made in. One that is kept for others must not go on
    under the deadline of whoever happened to need it first.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        """Put the current deadline aside."""
        self._token = _current.set(None)

    def __exit__(self, *_exc: object) -> None:
        """Take it up again."""
        _current.reset(self._token)


class PendingTimer(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> object:
        """See that it does not fire."""
        ...


class Timers(Protocol):
    """Gives out timers; the loop does, and whoever shares one of the loop's among many."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> PendingTimer:
        """Call back after so many seconds, unless the returned timer is cancelled first."""
        ...


_WAITING: Final = 0
_FIRED: Final = 1
_LEFT: Final = 2


class timeout:  # noqa: N801 - reads as a verb at the call site: `async with timeout("kms_sign", 3.0):`
    """Bound a block by min(seconds, remaining of the current deadline); raise `Timeout` when it passes.

    Unlike `asyncio.wait_for` it makes no task and never swallows a cancel: a cancel from outside that
    arrives together with the timer wins, because the task's cancel count is then above our own.
    """

    __slots__ = ("_budget_s", "_cancels_before", "_op", "_seconds", "_state", "_task", "_timer", "_timers", "_token")

    def __init__(self, op: str, seconds: float, timers: Timers | None = None) -> None:
        """Name the operation, for the error and its metric; `timers` are used instead of the loop's."""
        self._op = op
        self._seconds = seconds
        self._timers = timers
        self._state = _WAITING

    async def __aenter__(self) -> Self:
        """Arm the timer; an already passed deadline fires at the first suspension."""
        task = asyncio.current_task()
        if task is None:
            message = "timeout() must be used inside a task"
            raise RuntimeError(message)
        loop = asyncio.get_running_loop()
        now = loop.time()
        outer = _current.get()
        self._budget_s = self._seconds if outer is None else outer.clip(self._seconds, now)
        self._task, self._cancels_before = task, task.cancelling()
        since = now if outer is None else outer.since
        self._token = _current.set(Deadline(now + self._budget_s, self._budget_s, since))
        self._timer: PendingTimer = (self._timers or loop).call_later(self._budget_s, self._fire)
        return self

    def _fire(self) -> None:
        """Interrupt the block: runs as a loop callback, never inside the block itself."""
        if self._state == _WAITING:
            self._state = _FIRED
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Disarm; turn our own cancel, and only ours, into `Timeout`."""
        self._timer.cancel()
        _current.reset(self._token)
        fired = self._state == _FIRED
        self._state = _LEFT
        if not fired:
            return
        ours_alone = self._task.uncancel() <= self._cancels_before
        if ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise Timeout(self._op, budget_s=self._budget_s) from error


async def pause(op: str, seconds: float) -> None:
    """Wait so long, or until the caller's deadline has passed, which is a `Timeout`.

    A process that was stopped meanwhile has waited longer, and goes on: how late a pause ends is nobody's failure.
    """
    outer, loop = _current.get(), asyncio.get_running_loop()
    try:
        async with timeout(op, seconds):
            await loop.create_future()
    except Timeout:
        if outer is not None and outer.expired(loop.time()):
            raise
