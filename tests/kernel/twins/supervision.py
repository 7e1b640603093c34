"""Supervisors with one planted bug each."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from penstock.kernel.child import Child, ChildState
from penstock.kernel.deadline import timeout
from penstock.kernel.drain import Drainer
from penstock.kernel.restart import Action, Escalation, Exit, History
from penstock.kernel.scope import Scope
from penstock.kernel.supervisor import Supervisor


class RestartsAtOnce(Supervisor):
    """Has no backoff."""

    async def _carry_out(self, child, action, delay_s) -> bool:
        return await super()._carry_out(child, action, delay_s if action is Action.QUARANTINE else 0.0)


class CountsReturnsAsCrashes(Supervisor):
    """Takes every end of a run for a crash."""

    async def _run_once(self, child):
        ended, error = await super()._run_once(child)
        return (Exit.CRASHED, ValueError("returned")) if ended is Exit.RETURNED else (ended, error)


class NeverEscalates(Supervisor):
    """Restarts for ever."""

    async def _run_once(self, child):
        child.history = History()
        return await super()._run_once(child)


class QuarantinesTheFatal(Supervisor):
    """Knows only one kind of escalation."""

    def _policy(self, child):
        return replace(super()._policy(child), escalation=Escalation.QUARANTINE)


class StopsInStartOrder(Supervisor):
    """Ends first what everybody else still needs."""

    async def drain(self, deadline_s=None, *, keep_intake=False):
        self.specs.reverse()
        return await super().drain(deadline_s, keep_intake=keep_intake)


class LeavesAHalfStart(Supervisor):
    """Raises the error of a failed start and lets the rest run on."""

    async def start(self) -> None:
        for spec in self.specs:
            await self._start_spec(spec)


class WaitsForTheLeft(Supervisor):
    """Does not notice that the child it waits for has gone."""

    async def _start_spec(self, spec) -> None:
        for child in [Child(spec, index, self.inventory) for index in range(spec.instances)]:
            self.children.append(child)
            child.task = asyncio.get_running_loop().create_task(self._keep(_Deaf(child)))
            async with timeout("start", self.options.start_deadline_s):
                await asyncio.shield(child.announced)


class _Deaf:
    """A child whose announcement cannot be failed."""

    def __init__(self, child: Child) -> None:
        self.__dict__["child"] = child

    def __getattr__(self, name):
        if name == "announced":
            done = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        return getattr(self.child, name)

    def __setattr__(self, name, value) -> None:
        setattr(self.child, name, value)


class OpensGatesEarly(Supervisor):
    """Calls a child ready when its task exists."""

    def _judge_gate(self, spec) -> None:
        super()._judge_gate(spec)
        self.inventory.health.gate(spec.name).set(is_open=True)


class KillsBetweenRuns(Supervisor):
    """Lets a kill hit the child while its last run is being put away."""

    def kill(self, name: str) -> bool:
        child = next(child for child in self.children if child.spec.name == name)
        child.state = ChildState.RUNNING
        child.killed = False
        return child.kill()


class DiesOfStrayCancels(Supervisor):
    """Takes every CancelledError for its own end."""

    async def _keep(self, child) -> None:
        inner = child.spec.run

        async def run(this) -> None:
            try:
                await inner(this)
            except asyncio.CancelledError:
                asyncio.current_task().cancel()
                raise

        object.__setattr__(child.spec, "run", run)
        await super()._keep(child)


class SwallowsTheAbort(Supervisor):
    """Takes any cancel of a killed child for the kill."""

    async def _run_once(self, child):
        try:
            return await super()._run_once(child)
        except asyncio.CancelledError:
            if not child.killed:
                raise
            return Exit.KILLED, ValueError("killed")


class LeavesScopesRunning(Supervisor):
    """Forgets the scopes of a run that ended."""

    async def _run_once(self, child):
        child.scope = lambda kind, limit: _loose(self.inventory, kind, limit)
        return await super()._run_once(child)


def _loose(inventory, kind, limit):
    return Scope(kind, limit, inventory.metrics)


class SpinsWhileDraining(Supervisor):
    """Runs a crashed worker again without a pause once the service drains."""

    async def _carry_out(self, child, action, delay_s) -> bool:
        return await super()._carry_out(child, action, 0.0 if child.shutdown.draining else delay_s)


class LeavesWorkBehind(Supervisor):
    """Does not start a crashed worker again once the service drains."""

    async def _carry_out(self, child, action, delay_s) -> bool:
        if await child.shutdown.sleep(delay_s):
            child.state = ChildState.FINISHED
            return False
        return await super()._carry_out(child, action, 0.0)


class Mute(Supervisor):
    """Leaves the gate open whatever happens."""

    def _judge_gate(self, spec) -> None:
        self.inventory.health.gate(spec.name).set(is_open=True)


class DrainsAnew(Supervisor):
    """Starts a second drain beside the first."""

    async def drain(self, deadline_s=None, *, keep_intake=False):
        limit_s = self.options.drain_deadline_s if deadline_s is None else deadline_s
        return await Drainer(self, limit_s, keep_intake=keep_intake).run()


class ForgetsNewQuiet(Supervisor):
    """Takes the silence of an earlier run for that of the present one."""

    def _judge_gate(self, spec) -> None:
        super()._judge_gate(spec)
        for child in self.children:
            if child.restarts:
                child.quiet()


class ClosesChannelsFirst(Supervisor):
    """Closes what the workers receive from before the intake is quiet."""

    async def drain(self, deadline_s=None, *, keep_intake=False):
        for child in self.children:
            for channel in child.channels:
                channel.close()
        return await super().drain(deadline_s, keep_intake=keep_intake)


class WaitsForTheLate(Supervisor):
    """Has a deadline on paper only."""

    async def drain(self, deadline_s=None, *, keep_intake=False):
        return await super().drain(3600.0, keep_intake=keep_intake)


class KeepsNoAccount(Supervisor):
    """Aborts without counting."""

    async def drain(self, deadline_s=None, *, keep_intake=False):
        drainer = Drainer(self, self.options.drain_deadline_s if deadline_s is None else deadline_s)
        drainer._count_aborted = lambda child: None
        return await drainer.run()


class CannotHurry(Supervisor):
    """Is deaf to an impatient operator."""

    def hurry(self) -> None:
        return


class ClosesTheIntakeToo(Supervisor):
    """Ends the listener although it was asked to keep it."""

    async def drain(self, deadline_s=None, *, keep_intake=False):
        return await super().drain(deadline_s)
