"""The supervisor: children are data, every task has a parent, and the end is an ordered drain.

It starts its children in order and stops them in reverse, so that the listener, listed last, starts when
everything behind it runs and stops taking work first. What follows a crash is decided in `restart.verdict`;
here it is only carried out. The end is in `drain`.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.kernel.bus import ServiceCrashed
from penstock.kernel.child import Child, ChildSpec, ChildState, Drain
from penstock.kernel.deadline import timeout
from penstock.kernel.drain import Drainer, DrainReport
from penstock.kernel.lifecycle import Phase
from penstock.kernel.log import Log
from penstock.kernel.restart import (
    Action,
    Exit,
    RestartDecision,
    RestartPolicy,
    verdict,
)
from penstock.kernel.scope import ABORT_GRACE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.kernel.backoff import Rng
    from penstock.kernel.bus import Bus
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.watch import Watch

_TASK_METRICS = {
    "tasks_spawned_total": "Tasks started.",
    "tasks_canceled_total": "Tasks that ended by observing shutdown.",
    "tasks_aborted_total": "Tasks cut off after the drain deadline.",
}
_LOST = (ChildState.QUARANTINED, ChildState.PROBATION, ChildState.FATAL)


class Killed(RuntimeError):
    """The task was killed by an operator or a test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorOptions:
    """What differs from service to service."""

    drain_deadline_s: float = 3.0
    start_deadline_s: float = 10.0
    policy: RestartPolicy = field(default_factory=RestartPolicy)


class Supervisor:
    """Runs the children of one service and owns their end."""

    def __init__(
        self,
        inventory: Inventory,
        specs: Sequence[ChildSpec],
        options: SupervisorOptions | None = None,
        *,
        bus: Bus | None = None,
        rng: Rng | None = None,
    ) -> None:
        """Take the specs as data; nothing runs before `start`."""
        self.service = inventory.service
        self.inventory = inventory
        self.options = options or SupervisorOptions()
        self.specs = list(specs)
        self.children: list[Child] = []
        self.phase: Watch[Phase] = inventory.watch("shutdown", Phase.RUNNING, producers="supervisor", consumers="all")
        # Called with the task's name when a crash loop was escalated to fatal.
        self.on_fatal: Callable[[str], None] | None = None
        self._clock = inventory.clock
        self._metrics = inventory.metrics
        self._log = Log(self.service)
        self._bus = bus
        self._rng = rng or random.Random()
        # Recent crashes by what loops together; the verdict forgets those outside its window.
        self._crashes: dict[str, tuple[float, ...]] = {}
        self._drainers: list[Drainer] = []  # at most one that keeps the intake and one that does not
        inventory.declare_tasks(self)
        self._declare_metrics()

    def _declare_metrics(self) -> None:
        """Declare every series at zero: a rate over a counter that appears with its first event misses it."""
        for spec in self.specs:
            for name, text in _TASK_METRICS.items():
                self._metrics.counter(name, text, kind=spec.task_kind)
            self._metrics.counter("service_restarts_total", "Restarts of a task.", task=spec.name)

    # --- start -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the children in order; one that announces itself is waited for before the next.

        A child that ends before it announced itself fails the start: its error is raised, and what was
        started before it is stopped.
        """
        try:
            for spec in self.specs:
                await self._start_spec(spec)
        except BaseException:
            await self.drain(ABORT_GRACE_S)
            raise

    async def _start_spec(self, spec: ChildSpec) -> None:
        started = [Child(spec, index, self.inventory) for index in range(spec.instances)]
        self.children.extend(started)
        for child in started:
            child.on_announce = lambda announced: self._judge_gate(announced.spec)
            child.task = asyncio.get_running_loop().create_task(self._keep(child), name=f"{self.service}/{child.name}")
        if spec.announces:
            for child in started:
                async with timeout(f"start:{child.name}", self.options.start_deadline_s):
                    await asyncio.shield(child.announced)
        self._judge_gate(spec)

    # --- keep ------------------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> None:
        """Run a child again and again as the verdicts say. This is the child's one task."""
        while True:
            ended, error = await self._run_once(child)
            decision = self._judge(child, ended)
            # What never worked is a failed start, told to whoever starts; it is no crash to recover from.
            if _failed_to_start(child, decision.action, error):
                return
            self._report(child, ended, error)
            if not await self._carry_out(child, decision.action, decision.delay_s):
                return

    def _judge(self, child: Child, ended: Exit) -> RestartDecision:
        """Ask for the verdict. A pool that shares its channels shares its crashes too: it loops as one."""
        loops_as = child.name if callable(child.spec.consumes) else child.spec.name
        history = replace(child.history, crashes=self._crashes.get(loops_as, ()))
        decision = verdict(self._policy(child), ended, history, self._clock.monotonic(), self._rng)
        self._crashes[loops_as] = decision.history.crashes
        child.history = decision.history
        return decision

    def _policy(self, child: Child) -> RestartPolicy:
        return child.spec.policy or self.options.policy

    async def _run_once(self, child: Child) -> tuple[Exit, Exception | None]:
        child.begin(self._clock.monotonic(), self._passed_probation, self._policy(child).probation_s)
        if child.restarts or child.index == child.spec.instances - 1:
            # At the start the last of a group judges for all: each for itself would look at every one each time.
            self._judge_gate(child.spec)
        try:
            await child.spec.run(child)
        except asyncio.CancelledError as error:
            if _cancelled_for_good(child):
                raise
            return (Exit.KILLED, Killed(f"{child.name} was killed")) if child.killed else (Exit.CRASHED, _stray(error))
        except Exception as error:  # noqa: BLE001 - the supervisor is where a crash ends
            _take_off_kill(child)
            return Exit.CRASHED, error
        finally:
            await child.end()
        _take_off_kill(child)
        return (Exit.STOPPED if child.shutdown.draining else Exit.RETURNED), None

    def _report(self, child: Child, ended: Exit, error: Exception | None) -> None:
        if ended is Exit.STOPPED:
            kind = child.spec.task_kind
            self._metrics.counter("tasks_canceled_total", "Tasks ended by shutdown.", kind=kind).value += 1
        if error is None:
            return
        child.last_error = f"{type(error).__name__}: {error}"
        self._log.error("task.crashed", error=error, task=child.name, crashes=len(child.history.crashes))
        if self._bus is not None:
            self._bus.publish(ServiceCrashed(self.service, child.name, type(error).__name__))

    async def _carry_out(self, child: Child, action: Action, delay_s: float) -> bool:
        """Do what was decided; False when the child's task is over."""
        if action is Action.FINISH:
            child.state = ChildState.FINISHED
            self._judge_gate(child.spec)
            return False
        if action is Action.FATAL:
            self._fatal(child)
            return False
        child.state = ChildState.QUARANTINED if action is Action.QUARANTINE else ChildState.BACKOFF
        if action is Action.QUARANTINE:
            self._log.error("task.quarantined", task=child.name, retry_in_s=delay_s)
        self._judge_gate(child.spec)
        was_draining = child.shutdown.draining
        if await child.shutdown.sleep(delay_s):
            if not _has_admitted_work(child):
                child.state = ChildState.FINISHED
                return False
            if was_draining:
                # It crashed while working its channel off. The shutdown's own sleep is over at once now, so
                # without this one a worker that crashes on sight would hold the loop for ever.
                await asyncio.sleep(delay_s)
        child.restarts += 1
        self._metrics.counter("service_restarts_total", "Restarts of a task.", task=child.spec.name).value += 1
        return True

    def _fatal(self, child: Child) -> None:
        child.state = ChildState.FATAL
        self.inventory.health.fatal = child.name
        self._judge_gate(child.spec)
        self._log.error("service.fatal", task=child.name, crashes=len(child.history.crashes))
        if self.on_fatal is not None:
            self.on_fatal(child.name)

    def _passed_probation(self, child: Child) -> None:
        child.state = ChildState.RUNNING
        self._log.info("task.recovered", task=child.name)
        self._judge_gate(child.spec)

    def _judge_gate(self, spec: ChildSpec) -> None:
        """Shut the gate of a child that cannot do its work, and refuse on channels nobody receives from."""
        group = [child for child in self.children if child.spec is spec]
        up = [child for child in group if child.state in (ChildState.RUNNING, ChildState.FINISHED)]
        served = {id(channel) for child in up for channel in child.channels}
        stranded = False
        for child in group:
            if child.state in _LOST or child.state is ChildState.BACKOFF:
                stranded |= _suspend_stranded(child, served)
            else:
                for channel in child.channels:
                    channel.resume()
        lost = any(child.state in _LOST for child in group)
        unheard = not all(child.working or child.state is ChildState.FINISHED for child in group)
        shut = unheard or stranded or lost or (not up and spec.critical)
        self.inventory.health.gate(spec.name).set(is_open=not shut, degraded=len(up) < len(group))

    def kill(self, name: str) -> bool:
        """Crash the child (or the first running instance) of that name; for chaos, when it is allowed."""
        return any(child.kill() for child in self.children if name in (child.name, child.spec.name))

    # --- end -------------------------------------------------------------------------------------------

    async def drain(self, deadline_s: float | None = None, *, keep_intake: bool = False) -> DrainReport:
        """Stop intake, finish admitted work in reverse order, close; what is late is aborted and counted.

        With `keep_intake` the listener stays and goes on refusing: a fatal service still answers. Asked again it
        joins the drain that runs, and tells of the one that ran.
        """
        for drainer in self._drainers:
            if drainer.covers(keep_intake=keep_intake):
                return await drainer.join(deadline_s)
        earlier = [drainer for drainer in self._drainers if drainer.covers(keep_intake=True)]
        limit_s = self.options.drain_deadline_s if deadline_s is None else deadline_s
        this = Drainer(self, limit_s, keep_intake=keep_intake)
        self._drainers.append(this)
        for drainer in earlier:  # it kept the intake: this one goes on where it ends
            await drainer.join(deadline_s)
        return await this.run()

    def retime(self, drain_deadline_s: float) -> None:
        """Change how long a later drain may take."""
        self.options = replace(self.options, drain_deadline_s=drain_deadline_s)

    def hurry(self) -> None:
        """Set the deadline of a running drain to zero."""
        for drainer in self._drainers:
            drainer.hurry()


def _failed_to_start(child: Child, action: Action, error: Exception | None) -> bool:
    """Tell the start that the child it waits for is gone; False when nobody waits, or it will be tried again."""
    if not child.spec.announces or child.announced.done() or (error is None and action is not Action.FINISH):
        return False
    child.state = ChildState.FINISHED
    child.announced.set_exception(error or RuntimeError(f"{child.name} ended before it announced itself"))
    child.announced.exception()  # seen, even if the start gave up waiting before
    return True


def _cancelled_for_good(child: Child) -> bool:
    """Tell an abort from a kill, and from a CancelledError of nobody's."""
    return _take_off_kill(child) > 0


def _take_off_kill(child: Child) -> int:
    """Take a kill off the task's count of cancels, however the run ended; return how many cancels are left.

    A kill that stayed on the count would make the next one look like an abort: the child would end for good.
    """
    task = asyncio.current_task()
    assert task is not None
    return task.uncancel() if child.killed else task.cancelling()


def _stray(error: asyncio.CancelledError) -> Exception:
    """Name a CancelledError that came out of something awaited, while nobody cancelled the child."""
    stray = RuntimeError("something the task awaited was cancelled")
    stray.__cause__ = error
    return stray


def _has_admitted_work(child: Child) -> bool:
    """Tell whether work in its channels still wants this worker, although the service drains."""
    return child.spec.drain is Drain.FINISH and any(channel.depth for channel in child.channels)


def _suspend_stranded(child: Child, served: set[int]) -> bool:
    """Suspend the channels that no running instance receives from, once the child is given up on for now."""
    stranded = [channel for channel in child.channels if id(channel) not in served]
    if child.state in _LOST:
        for channel in stranded:
            channel.suspend()
    return bool(stranded) and child.state in _LOST
