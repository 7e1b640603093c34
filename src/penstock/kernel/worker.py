"""A job and the loop that works on it. The loop catches Exception, so that a bad request is no crash of its worker.

The job carries its reply, its deadline and its corr_id across the channel, because a context variable does
not cross one. A client that went away withdraws the job only until a worker has taken it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import Canceled, Closed, Internal, PenstockError, Timeout, forget_where
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.metrics import Metrics

V = TypeVar("V")
R = TypeVar("R")

# So many failed jobs in a row are no longer bad input but a broken worker.
FAILURES_IN_A_ROW_MAX: Final = 100

_corr_id: ContextVar[str] = ContextVar("penstock_corr_id", default="")


def current_corr_id() -> str:
    """Return the corr_id of the job being worked on, or an empty string."""
    return _corr_id.get()


class Job(Generic[V, R]):
    """A unit of admitted work and the future its sender waits on."""

    __slots__ = ("corr_id", "deadline", "reply", "taken", "value")

    def __init__(self, value: V, *, deadline: Deadline | None = None, corr_id: str = "") -> None:
        """Make the reply future on the running loop."""
        self.value = value
        self.deadline = deadline
        self.corr_id = corr_id
        self.taken = False
        self.reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def take(self) -> bool:
        """Claim the job for a worker; False when its sender withdrew it first."""
        if self.reply.done():
            return False
        self.taken = True
        return True

    def withdraw(self) -> bool:
        """Take the job back because nobody waits any more; False once a worker has it."""
        return not self.taken and self.reply.cancel()

    def done(self, result: R) -> None:
        """Answer; an answer nobody waits for any more is dropped."""
        if not self.reply.done():
            self.reply.set_result(result)

    def fail(self, error: PenstockError) -> None:
        """Answer with an error; it is marked as seen, because a sender that left will never look."""
        if not self.reply.done():
            self.reply.set_exception(forget_where(error))
            self.reply.exception()


class JobLoop(Generic[V, R]):
    """Takes jobs from a channel until it is closed and empty, one after the other."""

    def __init__(
        self,
        worker: str,
        channel: Channel[Job[V, R]],
        handle: Callable[[V], Awaitable[R]],
        metrics: Metrics,
    ) -> None:
        """Name the worker kind; `handle` does the work of one job."""
        self._worker = worker
        self._channel = channel
        self._handle = handle
        self._metrics = metrics
        self._log = Log(metrics.service)
        self._failures_in_a_row = 0

    async def run(self, clock: Callable[[], float]) -> None:
        """Work until the channel is closed and empty: closing, not cancelling, ends a worker in good order."""
        self._failures_in_a_row = 0  # a restarted worker is judged anew
        while True:
            try:
                job = await self._channel.recv()
            except Closed:
                return
            if job.take():
                await self._work(job, clock())

    async def _work(self, job: Job[V, R], now: float) -> None:
        if job.deadline is not None and job.deadline.expired(now):
            job.fail(Timeout(f"{self._worker}_queue", budget_s=job.deadline.budget_s))
            return
        token = _corr_id.set(job.corr_id)
        try:
            with use_deadline(job.deadline):
                job.done(await self._handle(job.value))
            self._failures_in_a_row = 0
        except PenstockError as error:
            job.fail(error)
            self._failures_in_a_row = 0
        except Exception as error:  # noqa: BLE001 - the job's own boundary
            self._failed(job, error)
        except asyncio.CancelledError as error:
            if _being_cancelled():
                raise
            # Something the job awaited was cancelled, not the worker: a failed job like any other.
            self._failed(job, error)
        finally:
            # Whatever else ends the worker here must not leave the sender waiting: an abort closed the channel
            # before, a kill did not.
            if not job.reply.done():
                job.fail(Canceled() if self._channel.closed else Internal(corr_id=job.corr_id))
            _corr_id.reset(token)

    def _failed(self, job: Job[V, R], error: BaseException) -> None:
        job.fail(Internal(corr_id=job.corr_id))
        kind = type(error).__name__
        self._metrics.counter("job_failures_total", "Jobs that raised.", worker=self._worker, type=kind).value += 1
        self._log.error("job.failed", error=error, worker=self._worker, corr_id=job.corr_id)
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
            message = f"{self._worker} failed {self._failures_in_a_row} jobs in a row"
            raise RuntimeError(message) from error


def cancel_left_over(channel: Channel[Any]) -> int:
    """Answer what an aborted worker left in its channel with `Canceled`; returns how many jobs that were."""
    left = channel.abandon()
    for item in left:
        if isinstance(item, Job):
            item.fail(Canceled())
    return len(left)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
