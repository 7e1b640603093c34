"""The drain of a service: stop intake, finish what was admitted, close, and cut off what is late."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.kernel.child import Drain
from penstock.kernel.lifecycle import Phase
from penstock.kernel.log import Log
from penstock.kernel.scope import ABORT_GRACE_S
from penstock.kernel.worker import cancel_left_over

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.kernel.child import Child
    from penstock.kernel.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How a drain went: clean means that nothing had to be cut off."""

    service: str
    aborted: tuple[str, ...]
    elapsed_s: float

    @property
    def clean(self) -> bool:
        """Tell whether everything ended by itself."""
        return not self.aborted


class Drainer:
    """One drain of one supervisor, under one deadline; a second request joins it."""

    def __init__(self, supervisor: Supervisor, deadline_s: float, *, keep_intake: bool = False) -> None:
        self._supervisor = supervisor
        self._keep_intake = keep_intake
        self._clock = supervisor.inventory.clock
        self._began = self._clock.monotonic()
        self._limit = self._began + deadline_s
        self._hurried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done: asyncio.Future[DrainReport] = asyncio.get_running_loop().create_future()
        self._log = Log(supervisor.service)

    def covers(self, *, keep_intake: bool) -> bool:
        """Tell whether this drain does all that another one would; a cut off one covers nothing."""
        return not self._done.cancelled() and (keep_intake or not self._keep_intake)

    async def join(self, deadline_s: float | None) -> DrainReport:
        """Wait for this drain instead of beginning another; a repeat changes nothing, unless it allows no time."""
        if deadline_s is not None and deadline_s <= 0:
            self.hurry()
        return await asyncio.shield(self._done)

    def hurry(self) -> None:
        """Set the deadline to zero."""
        self._limit = self._began
        if not self._hurried.done():
            self._hurried.set_result(None)

    async def run(self) -> DrainReport:
        """Go through the phases; returns when every task has ended or was given up on."""
        try:
            report = self._report(await self._go_through())
        except BaseException:
            self._done.cancel()
            raise
        self._done.set_result(report)
        return report

    async def _go_through(self) -> list[str]:
        supervisor, keep_intake = self._supervisor, self._keep_intake
        self._enter(Phase.DRAINING)
        intake = [child for child in supervisor.children if child.spec.drain is Drain.STOP_INTAKE]
        for child in intake:
            child.shutdown.request(Phase.DRAINING, self._limit)
        await self._wait_for(child.quieted for child in intake)
        for spec in reversed(supervisor.specs):
            if spec.drain is not Drain.STOP_INTAKE:
                await self._finish(child for child in supervisor.children if child.spec is spec)
        if not keep_intake:
            for child in intake:
                child.shutdown.request(Phase.STOPPED)
            await self._wait_for(child.task for child in intake)
        aborted = await self._abort([c for c in supervisor.children if not (keep_intake and c in intake)])
        if not keep_intake:
            self._enter(Phase.STOPPED)
        return aborted

    def _enter(self, phase: Phase) -> None:
        """Enter a later phase; a service never goes back to an earlier one."""
        if phase.follows(self._supervisor.phase.value):
            self._supervisor.phase.set(phase)
            self._log.info("phase", phase=phase.value)

    async def _finish(self, children: Iterable[Child]) -> None:
        """Close what the children receive from and wait until they have worked it off."""
        ending = list(children)
        for child in ending:
            for channel in child.channels:
                channel.close()
            child.shutdown.request(Phase.DRAINING, self._limit)
        await self._wait_for(child.task for child in ending)

    async def _wait_for(self, futures: Iterable[asyncio.Future[Any] | None]) -> None:
        """Wait for all of them, but not beyond the deadline."""
        pending = {future for future in futures if future is not None and not future.done()}
        while pending:
            left_s = self._limit - self._clock.monotonic()
            if left_s <= 0:
                return
            await asyncio.wait({*pending, self._hurried}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            pending = {future for future in pending if not future.done()}

    async def _abort(self, children: list[Child]) -> list[str]:
        """Cancel what is left, wait a moment, give up, count."""
        late = [child for child in children if child.task is not None and not child.task.done()]
        if late:
            self._enter(Phase.ABORTING)
        # Whoever takes work in goes last: what the others leave undone is answered through it.
        behind = [child for child in late if child.spec.drain is not Drain.STOP_INTAKE]
        await self._cut_off(behind)
        for child in behind:
            for channel in child.channels:
                cancel_left_over(channel)
        await self._cut_off([child for child in late if child not in behind])
        return [*(child.name for child in late), *(kind for child in children for kind in child.cut)]

    async def _cut_off(self, children: list[Child]) -> None:
        """Cancel, wait for the end, but not long."""
        tasks = {child.task for child in children if child.task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABORT_GRACE_S)
            # One more turn of the loop, in which answers to what was cut are written.
            await asyncio.sleep(0)
        for child in children:
            self._count_aborted(child)

    def _count_aborted(self, child: Child) -> None:
        metrics = self._supervisor.inventory.metrics
        metrics.counter("tasks_aborted_total", "Tasks cut off.", kind=child.spec.task_kind).value += 1
        self._log.warning("task.aborted", task=child.name)

    def _report(self, aborted: list[str]) -> DrainReport:
        elapsed_s = self._clock.monotonic() - self._began
        report = DrainReport(self._supervisor.service, tuple(aborted), elapsed_s)
        self._log.info("drained", clean=report.clean, elapsed_ms=round(elapsed_s * 1000), aborted=len(aborted))
        return report
