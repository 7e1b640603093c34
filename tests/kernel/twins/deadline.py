"""Timeouts, locks, scopes and resources with one planted bug each."""

from __future__ import annotations

import asyncio

from penstock.kernel import deadline as deadline_module
from penstock.kernel.deadline import Deadline
from penstock.kernel.deadline import timeout as real_timeout
from penstock.kernel.errors import Timeout
from penstock.kernel.lock import Lock
from penstock.kernel.resource import Resource
from penstock.kernel.scope import ABORT_GRACE_S, Scope


class swallows_the_outer_cancel(real_timeout):  # noqa: N801 as the real one
    """Whatever cancel arrives after the timer fired is taken for its own, as asyncio.wait_for does."""

    async def __aexit__(self, kind, error, traceback) -> None:
        self._timer.cancel()
        deadline_module._current.reset(self._token)
        fired = self._state == 1
        self._state = 2
        if fired and kind is not None and issubclass(kind, asyncio.CancelledError):
            while self._task.cancelling():
                self._task.uncancel()
            raise Timeout(self._op, budget_s=self._budget_s) from error


class takes_every_cancel_for_its_own(real_timeout):  # noqa: N801 as the real one
    """Turns a cancel from outside into a Timeout even when its timer never fired."""

    async def __aexit__(self, kind, error, traceback) -> None:
        self._state = 1 if kind is asyncio.CancelledError else self._state
        self._cancels_before += 1
        await super().__aexit__(kind, error, traceback)


class never_fires(real_timeout):  # noqa: N801 as the real one
    """Forgets to interrupt."""

    def _fire(self) -> None:
        self._state = 1


class ignores_the_outer_deadline(real_timeout):  # noqa: N801 as the real one
    """Every call gets its own full time."""

    async def __aenter__(self):
        token = deadline_module._current.set(None)
        try:
            await super().__aenter__()
        finally:
            budget_s = self._budget_s
            deadline_module._current.reset(token)
        self._token = deadline_module._current.set(Deadline(0.0, budget_s))
        return self


class leaves_the_cancel_count(real_timeout):  # noqa: N801 as the real one
    """Forgets to take its own cancel off the task's count."""

    async def __aexit__(self, kind, error, traceback) -> None:
        self._timer.cancel()
        deadline_module._current.reset(self._token)
        if self._state == 1 and kind is asyncio.CancelledError:
            raise Timeout(self._op, budget_s=self._budget_s) from error


class counts_from_zero(real_timeout):  # noqa: N801 as the real one
    """Takes any cancel count at all for a cancel from outside, also one from before the block."""

    async def __aenter__(self):
        await super().__aenter__()
        self._cancels_before = 0
        return self


class fires_after_the_block(real_timeout):  # noqa: N801 as the real one
    """Leaves its timer armed when the block ends."""

    async def __aexit__(self, kind, error, traceback) -> None:
        deadline_module._current.reset(self._token)


class Unranked(Lock):
    """Lets locks be taken in any order."""

    def _check_rank(self) -> None:
        return


class Unwatched(Lock):
    """Does not see that its holder suspends."""

    def _watch_for_suspension(self) -> None:
        return


class UnboundedScope(Scope):
    """Starts whatever it is given."""

    def start(self, work, *, name=None):
        self.limit = len(self) + 1
        return super().start(work, name=name)


class LeakingScope(Scope):
    """Forgets its tasks instead of ending them."""

    def cancel(self) -> None:
        self._closed = True
        self._tasks.clear()


class RecountingScope(Scope):
    """Counts again each time it is closed."""

    async def close(self) -> int:
        self._metrics.counter("tasks_aborted_total", "Tasks cut off.", kind=self.kind).value += 1
        return await super().close()


class Held(Resource):
    """A correct resource that counts its releases."""

    def __init__(self, tell=lambda _: None) -> None:
        self.released = 0
        self._tell = tell
        self.opened("held")

    async def _release(self) -> None:
        await asyncio.sleep(ABORT_GRACE_S / 10)
        self.released += 1
        self._tell("released")


class ClosesTwice(Held):
    """Releases as often as it is closed."""

    async def close(self) -> None:
        self._closed = False
        await super().close()


class WorksInDel(Held):
    """Releases in __del__, where nothing may be waited for."""

    def __del__(self) -> None:
        self._tell("released in __del__")
