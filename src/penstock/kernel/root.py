"""The root: services in stages. It starts the last stage first and drains the first stage first.

A node drains in two stages, what faces the world and then what stands behind it, the admin listener last;
services of one stage drain side by side.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.kernel.drain import DrainReport
from penstock.kernel.lifecycle import Phase
from penstock.kernel.log import Log
from penstock.kernel.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.kernel.metrics import Metrics
    from penstock.kernel.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Staged:
    """A service and the stage it drains in: 1 faces the world, 2 stands behind it, 3 is the node's own."""

    supervisor: Supervisor
    stage: int


class Root:
    """The parent of all service supervisors in a process."""

    def __init__(self, services: Sequence[Staged], metrics: Metrics, *, exit_on_fatal: bool) -> None:
        """Take the services; `exit_on_fatal` decides whether one dead service ends the process."""
        self.services: list[Staged] = []
        self.fatal: list[str] = []
        self.stop_requested: asyncio.Event = asyncio.Event()
        self.on_phase: Callable[[str, Phase], None] | None = None
        self._exit_on_fatal = exit_on_fatal
        self._hurried = False
        self._ended: asyncio.Future[list[DrainReport]] | None = None
        self._log = Log(metrics.service)
        self._scope = Scope("drain", 64, metrics)
        for staged in services:
            self.adopt(staged)

    def adopt(self, staged: Staged) -> None:
        """Become the parent of one more service; before the start."""
        self.services.append(staged)
        staged.supervisor.on_fatal = self._fatal_handler(staged.supervisor)

    async def start(self) -> None:
        """Start every service, those that drain last first; a failure stops what was started."""
        for index, staged in enumerate(self._start_order()):
            try:
                await staged.supervisor.start()
            except BaseException:
                for started in reversed(self._start_order()[:index]):
                    await started.supervisor.drain()
                raise

    def _start_order(self) -> list[Staged]:
        return sorted(self.services, key=lambda staged: -staged.stage)

    def _fatal_handler(self, supervisor: Supervisor) -> Callable[[str], None]:
        def handle(task: str) -> None:
            self.fatal.append(f"{supervisor.service}/{task}")
            # Its own subtree stops; its listener stays and says so.
            self._scope.start(supervisor.drain(keep_intake=True), name=f"fatal:{supervisor.service}")
            if self._exit_on_fatal:
                self.stop_requested.set()

        return handle

    async def drain(self) -> list[DrainReport]:
        """Drain stage after stage; returns one report a service. Asked again it joins the drain that runs."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
            try:
                self._ended.set_result(await self._drain_stages())
            except BaseException:
                self._ended.cancel()
                raise
        return await asyncio.shield(self._ended)

    async def _drain_stages(self) -> list[DrainReport]:
        await self._scope.join()
        reports: list[DrainReport] = []
        for stage in sorted({staged.stage for staged in self.services}):
            reports += await self._drain_stage([s.supervisor for s in self.services if s.stage == stage])
        await self._scope.close()
        return reports

    async def _drain_stage(self, supervisors: list[Supervisor]) -> list[DrainReport]:
        for supervisor in supervisors:
            self._tell(supervisor.service, Phase.DRAINING)
        deadline_s = 0.0 if self._hurried else None
        tasks = [self._scope.start(supervisor.drain(deadline_s)) for supervisor in supervisors]
        await self._scope.join()
        for supervisor in supervisors:
            self._tell(supervisor.service, Phase.STOPPED)
        return [task.result() for task in tasks]

    def _tell(self, service: str, phase: Phase) -> None:
        if self.on_phase is not None:
            self.on_phase(service, phase)

    def hurry(self) -> None:
        """Set every drain deadline to zero: an operator is impatient."""
        self._hurried = True
        for staged in self.services:
            staged.supervisor.hurry()
