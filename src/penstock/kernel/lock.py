"""The only lock: named, ranked, thread-safe, `with` only; for the few values shared with pool threads.

Ranks are the seeds' hierarchies: take in ascending rank, never a lower one while holding a higher. In debug
mode (and in every test) breaking the order, or letting the loop run on while a lock is held, is an error.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

_held = threading.local()
_debug = False

# Rank by name: the five seeds' section 4, which agree on three levels.
HIERARCHY: dict[str, int] = {
    "policy_meta": 1,
    "state_meta": 1,
    "routing_table": 2,
    "routing_snapshot": 2,
    "issuer_epoch": 2,
    "counters": 3,
}


class LockOrder(RuntimeError):
    """Locks were taken against their ranks, or one was held across a suspension: a bug."""


def set_debug(*, on: bool) -> None:
    """Turn the checks on or off for the process; tests turn them on."""
    global _debug  # noqa: PLW0603 - one switch for the process, read on every acquisition
    _debug = on


class Lock:
    """A short critical section between the loop and pool threads. There is no `async with`."""

    __slots__ = ("_guard", "_lock", "acquired", "name", "rank")

    def __init__(self, name: str, rank: int) -> None:
        """Name and rank the lock."""
        self.name = name
        self.rank = rank
        self.acquired = 0
        self._lock = threading.Lock()
        self._guard: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        """Take the lock; waits only for another thread's short section."""
        if _debug:
            self._check_rank()
        self._lock.acquire()
        self.acquired += 1
        if _debug:
            _stack().append(self)
            self._watch_for_suspension()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Release the lock."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.cancel()
        stack = _stack()
        if self in stack:
            stack.remove(self)
        self._lock.release()

    def _check_rank(self) -> None:
        for held in _stack():
            if held.rank >= self.rank:
                message = f"lock {self.name} (rank {self.rank}) taken while holding {held.name} (rank {held.rank})"
                raise LockOrder(message)

    def _watch_for_suspension(self) -> None:
        """Queue a callback that can only run if the holder suspends: then the lock spans an await."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a pool thread: it cannot suspend
        self._guard = loop.call_soon(self._held_across_suspension, loop)

    def _held_across_suspension(self, loop: asyncio.AbstractEventLoop) -> None:
        message = f"lock {self.name} is held across an await"
        loop.call_exception_handler({"message": message, "exception": LockOrder(message)})


def _stack() -> list[Lock]:
    try:
        return _held.stack  # type: ignore[no-any-return]
    except AttributeError:
        stack: list[Lock] = []
        _held.stack = stack
        return stack
