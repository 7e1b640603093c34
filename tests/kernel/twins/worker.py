"""Worker loops with one planted bug each."""

from __future__ import annotations

from penstock.kernel.deadline import use_deadline
from penstock.kernel.errors import Closed, Internal, PenstockError
from penstock.kernel.worker import JobLoop


class BreaksOnShutdown(JobLoop):
    """The trap of the sketches: shutdown ends the loop, and the queue is left behind."""

    async def run(self, clock) -> None:
        while not self._channel.closed:
            job = await self._channel.recv()
            if job.take():
                await self._work(job, clock())


class DiesOfABadJob(JobLoop):
    """Has no boundary around a job."""

    def _failed(self, job, error) -> None:
        super()._failed(job, error)
        raise error


class HidesConditions(JobLoop):
    """Turns everything a job raises into a bug."""

    async def _work(self, job, now) -> None:
        try:
            job.done(await self._handle(job.value))
        except Exception as error:  # noqa: BLE001 the planted bug
            self._failed(job, error)


class DiesOfStrayCancels(JobLoop):
    """Takes the cancel of something a job awaited for its own."""

    async def _work(self, job, now) -> None:
        try:
            job.done(await self._handle(job.value))
        except PenstockError as error:
            job.fail(error)
        finally:
            job.fail(Internal())


class ToleratesEverything(JobLoop):
    """Never notices that all jobs fail."""

    def _failed(self, job, error) -> None:
        self._failures_in_a_row = 0
        super()._failed(job, error)


class BearsAGrudge(JobLoop):
    """Counts the failures of its earlier lives."""

    async def run(self, clock) -> None:
        failed = self._failures_in_a_row
        while True:
            try:
                job = await self._channel.recv()
            except Closed:
                return
            self._failures_in_a_row = max(self._failures_in_a_row, failed)
            if job.take():
                await self._work(job, clock())
            failed = self._failures_in_a_row


class LeavesTheSenderWaiting(JobLoop):
    """Answers only jobs that came to an end."""

    async def _work(self, job, now) -> None:
        job.done(await self._handle(job.value))


class WorksForNobody(JobLoop):
    """Does not ask whether the sender is still there."""

    async def run(self, clock) -> None:
        while True:
            try:
                job = await self._channel.recv()
            except Closed:
                return
            await self._work(job, clock())


class IgnoresTheDeadline(JobLoop):
    """Works on what nobody can use any more."""

    async def _work(self, job, now) -> None:
        job.deadline = None
        await super()._work(job, now)


class ForgetsTheContext(JobLoop):
    """Expects context variables to cross the channel by themselves."""

    async def _work(self, job, now) -> None:
        try:
            with use_deadline(None):
                job.done(await self._handle(job.value))
        except PenstockError as error:
            job.fail(error)


class TakesAllAtOnce(JobLoop):
    """Empties the channel into a list of its own, where nothing bounds it."""

    async def run(self, clock) -> None:
        kept = []
        while True:
            try:
                kept += await self._channel.recv_many(1)
            except Closed:
                break
        for job in kept:
            if job.take():
                await self._work(job, clock())
