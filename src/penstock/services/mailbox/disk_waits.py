"""Tasks of a worker that wait for the disk: each has somebody who hears of its end, whatever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.kernel.errors import Busy, Internal, NotReady, PenstockError

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.scope import Scope

WAITS_MAX: Final = 4096
GiveUp = Callable[[PenstockError], None]


class DiskWaits:
    """Starts the tasks of one worker.

    A worker may be killed, and its tasks with it, even before they began to run: then no `except` or `finally` inside
    them is reached. So whoever waits for a task is named beside it. `give_up` is called, once, with the error that
    the task ended with; and with NotReady when it was cut off.
    """

    def __init__(self) -> None:
        self._scope: Scope | None = None

    def begin(self, child: Child) -> Scope:
        """Run tasks under this worker from now on."""
        self._scope = child.scope("mailbox_load", WAITS_MAX)
        return self._scope

    def start(self, work: Coroutine[Any, Any, None], give_up: GiveUp) -> None:
        """Run something that has to wait for the disk; Busy when too much does, or the worker does not run."""
        if self._scope is None:
            work.close()
            raise Busy("The worker does not run yet.", queue="work")
        self._scope.start(work).add_done_callback(partial(_ended, give_up))


def _ended(give_up: GiveUp, task: asyncio.Task[None]) -> None:
    if task.cancelled():
        give_up(NotReady("The worker of this shard was restarted.", phase="restarting"))
        return
    error = task.exception()
    if error is not None:
        give_up(error if isinstance(error, PenstockError) else Internal())
