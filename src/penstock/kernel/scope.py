"""Short-lived tasks have a parent too: a bounded scope, joined before it closes, cancelled with its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.kernel.errors import Busy, PenstockError
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.metrics import Metrics

T = TypeVar("T")

# Abort is: cancel, wait this long, give up and count.
ABORT_GRACE_S: Final = 0.25
# In a scope larger than this nobody is looked at one by one: a refusal has to stay cheap while everybody is refused.
_LOOKED_AT_MAX: Final = 64


class Scope:
    """Where connections, requests, probes and parts run. Nothing in it is ever restarted."""

    __slots__ = ("_closed", "_log", "_metrics", "_on_end", "_spawned", "_tasks", "kind", "limit", "refused")

    def __init__(
        self, kind: str, limit: int, metrics: Metrics, *, on_end: Callable[[Scope], object] | None = None
    ) -> None:
        """Bound the number of tasks alive at once; `on_end` hears when it is closed and the last task is gone."""
        self.kind = kind
        self.limit = limit
        self.refused = 0
        self._metrics = metrics
        self._log = Log(metrics.service)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._on_end = on_end
        self._spawned = metrics.counter("tasks_spawned_total", "Tasks started.", kind=kind)

    def __len__(self) -> int:
        """Return how many tasks are alive."""
        return len(self._tasks)

    @property
    def closed(self) -> bool:
        """Tell whether new tasks are refused for good."""
        return self._closed

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine as a task of this scope, or raise `Busy` when the scope is full or closed."""
        if self._closed or (len(self._tasks) >= self.limit and self._is_full()):
            work.close()
            self.refused += 1
            raise Busy(f"no place left for another {self.kind}", limit=self.kind)
        task = asyncio.get_running_loop().create_task(work, name=name or self.kind)
        self._spawned.value += 1
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _is_full(self) -> bool:
        """Count the tasks that still run. A task that has ended leaves the set one turn of the loop later."""
        return self.limit > _LOOKED_AT_MAX or sum(not task.done() for task in self._tasks) >= self.limit

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._tell_end()
        if task.cancelled():
            return
        error = task.exception()
        # Ctrl-C and sys.exit leave the loop by themselves, and say what they have to say there.
        if error is not None and not isinstance(error, PenstockError | KeyboardInterrupt | SystemExit):
            self._metrics.counter(
                "job_failures_total", "Jobs that raised.", worker=self.kind, type=type(error).__name__
            ).value += 1
            self._log.error("task.failed", kind=self.kind, error=error)

    async def join(self) -> None:
        """Wait until no task is left; new ones may come meanwhile unless the scope is closed."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def cancel(self) -> None:
        """Refuse new tasks and cancel what is left, in one step; a second call changes nothing."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            cut = len(self._tasks)
            self._metrics.counter("tasks_aborted_total", "Tasks cut off.", kind=self.kind).value += cut
        self._tell_end()

    def _tell_end(self) -> None:
        if self._closed and not self._tasks and self._on_end is not None:
            self._on_end(self)

    async def close(self) -> int:
        """Cancel what is left, wait a moment, and return how many did not go."""
        self.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=ABORT_GRACE_S)
        return len(self._tasks)
