"""Performs the plan of a call without a task: tries begin and end in callbacks of the loop.

The driver knows which tries are under way, one or two while a hedge runs, and holds the one timer of the call: first
for the hedge, later for a pause before a retry. Whoever makes the calls derives nothing from it: it offers the few
methods of `DrivenCall` and tells the driver what each try came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from penstock.kernel.errors import Canceled, PenstockError
from penstock.net.calls.plan import Act, CallPlan, NextStep


class DrivenTry(Protocol):
    """One try that is under way."""

    @property
    def hedge(self) -> bool:
        """Tell whether it was sent beside another."""
        ...

    def drop(self, reason: PenstockError) -> None:
        """End it: nobody waits for it."""
        ...


A = TypeVar("A", bound=DrivenTry)
A_contra = TypeVar("A_contra", bound=DrivenTry, contravariant=True)


class DrivenCall(Protocol[A_contra]):
    """What the driver needs of the call it drives."""

    def begin_try(self, beside: A_contra | None, *, hedge: bool) -> None:
        """Begin a try, rather at another downstream than `beside`; raises what is known at once.

        It puts the try among the driver's `alive` before it can end.
        """
        ...

    def make_plan(self) -> CallPlan:
        """Make the plan, when something has to be decided: most calls never need one."""
        ...

    def resolve(self, result: object) -> None:
        """Take the outcome of the call."""
        ...


class CallbackDriver(Generic[A]):
    """The tries of one call. It is given the call each time and keeps none: a finished call is freed at once."""

    __slots__ = ("_plan", "_timer", "alive")

    def __init__(self) -> None:
        """Start before the first try."""
        self._plan: CallPlan | None = None
        self._timer: asyncio.TimerHandle | None = None
        # The tries under way: one, or two while a hedge runs.
        self.alive: list[A] = []

    def plan_of(self, call: DrivenCall[A]) -> CallPlan:
        """Return the plan of the call, whose first try has begun."""
        plan = self._plan
        if plan is None:
            plan = self._plan = call.make_plan()
            plan.begin()
        return plan

    @property
    def plan(self) -> CallPlan | None:
        """Return the plan, if anything had to be decided yet."""
        return self._plan

    def hedge_after(self, seconds: float, call: DrivenCall[A]) -> None:
        """Send a second request if the first is not answered by then."""
        self._later(seconds, partial(self._hedge, call))

    def _hedge(self, call: DrivenCall[A]) -> None:
        self._timer = None
        if self.plan_of(call).late(running=len(self.alive)).act is not Act.HEDGE:
            return
        try:
            call.begin_try(self.alive[0], hedge=True)
        except PenstockError:
            # The first one still runs: it decides.
            return

    def repeats(self, call: DrivenCall[A], attempt: A, step: NextStep) -> bool:
        """Do what the plan says about a try without a good answer; tell whether the call goes on without it."""
        if step.act is Act.TRY:
            self._later(step.delay_s, partial(self._again, call, attempt))
        elif step.act is not Act.WAIT:
            return False
        self.alive.remove(attempt)
        return True

    def _again(self, call: DrivenCall[A], before: A) -> None:
        self._timer = None
        self.plan_of(call).begin()
        try:
            call.begin_try(before, hedge=False)
        except PenstockError as error:
            call.resolve(error)

    def settle(self, winner: A) -> bool:
        """Let everything else go, because the answer is here; tell whether there was a hedge."""
        self._stop_timer()
        alive = self.alive
        hedged = len(alive) > 1 or winner.hedge
        for attempt in alive:
            if attempt is not winner:
                attempt.drop(Canceled())
        alive.clear()
        return hedged

    def cancel(self, reason: PenstockError) -> None:
        """Give up every try, and those that were to come."""
        self._stop_timer()
        for attempt in self.alive:
            attempt.drop(reason)
        self.alive.clear()

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        # lint: allow PK006 one timer at a time, taken off the loop by _stop_timer
        self._timer = asyncio.get_running_loop().call_later(seconds, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
