"""Break a task before every step of a run: linear cost, and it finds most cancel-safety bugs.

A scenario is an async function that starts its target through the `Run` it is given. It runs once untouched, to
count the steps; then once more for each step, with the target cancelled (or crashed) just before that step:

    async def scenario(run):
        channel = Channel("work", capacity=2, full=Full.REFUSE)
        taken = []
        run.start(consume(channel, taken))
        channel.try_send("a")
        await run.ended()
        return taken + [await channel.recv() for _ in range(channel.depth)]

    sweep(scenario, fault="cancel", check=lambda items: items == ["a"])

Every run has its own virtual loop, so a run that deadlocks or leaves something behind fails too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from penstock.testing.loop import VirtualLoop, task_of
from penstock.testing.session import Session, run_with
from penstock.testing.stacks import awaiting

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")

Fault = Literal["cancel", "crash"]
Grain = Literal["run", "task"]
Ends = Literal["broken", "anyhow"]

_SHOWN = 5


class Crash(Exception):
    """The fault thrown into the target by a crash sweep."""


class SweepFailure(AssertionError):
    """Some step of the sweep broke its scenario's promise."""

    def __init__(self, fault: Fault, failures: list[Failure], steps: int) -> None:
        """Show the first failures: the step, where the target stood, and what went wrong."""
        shown = "\n".join(f"  {failure}" for failure in failures[:_SHOWN])
        super().__init__(f"{fault} breaks the scenario at {len(failures)} of {steps} steps:\n{shown}")
        self.failures = failures


@dataclass(frozen=True, slots=True)
class Failure:
    """One step at which the fault broke something."""

    step: int
    line: str
    problem: str

    def __str__(self) -> str:
        """Print as the failure message shows it."""
        return f"before step {self.step}, at {self.line}: {self.problem}"


class _Crashable(Coroutine[Any, Any, T]):
    """A coroutine that can be made to fail at its next step, seen from inside as if what it awaits had failed."""

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self.inner = inner
        self.armed: Crash | None = None

    def send(self, value: object) -> object:
        if self.armed is None:
            return self.inner.send(value)
        crash, self.armed = self.armed, None
        return self.inner.throw(crash)

    def throw(self, *error: Any) -> object:  # noqa: ANN401 as the interpreter calls it
        return self.inner.throw(*error)

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self.inner.__await__()

    @property
    def cr_frame(self) -> FrameType | None:
        frame: FrameType | None = getattr(self.inner, "cr_frame", None)
        return frame

    @property
    def cr_await(self) -> object:
        return getattr(self.inner, "cr_await", None)


@dataclass(slots=True)
class Run(Generic[T]):
    """One run of a scenario: starts the target and, in all runs but the first, breaks it before one step."""

    fault: Fault
    grain: Grain
    at: int | None
    """The step to break, or None in the run that only counts."""
    steps: int = 0
    """How many steps passed while the target lived."""
    line: str = ""
    """Where the target stood when it was broken."""
    target: asyncio.Task[Any] | None = None
    _coro: _Crashable[Any] | None = field(default=None, repr=False)

    @property
    def fired(self) -> bool:
        """Tell whether the fault has struck in this run."""
        return self.at is not None and self.steps > self.at

    def start(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start the target: the one task of the scenario that is broken."""
        if self.target is not None:
            raise RuntimeError("a scenario has one target")
        self._coro = _Crashable(coro)
        self.target = asyncio.get_running_loop().create_task(self._coro, name="target")
        return self.target

    async def ended(self) -> BaseException | None:
        """Wait for the target's end and tell its error, without raising it."""
        assert self.target is not None, "the scenario starts its target first"
        await asyncio.wait({self.target})
        return _error_of(self.target)

    def observe(self, handle: asyncio.Handle) -> None:
        """Count this step of the loop, and strike when it is the one."""
        target = self.target
        if target is None or target.done() or (self.grain == "task" and task_of(handle) is not target):
            return
        if self.steps == self.at:
            self.line = " -> ".join(awaiting(target.get_coro()))
            self._strike(target)
        self.steps += 1

    def _strike(self, target: asyncio.Task[Any]) -> None:
        if self.fault == "cancel":
            target.cancel()
        elif self._coro is not None:
            self._coro.armed = Crash(f"before step {self.at}")


Scenario = Callable[[Run[T]], Coroutine[Any, Any, T]]
Check = Callable[[T], object]


def sweep(
    scenario: Scenario[T],
    *,
    fault: Fault = "cancel",
    check: Check[T] | None = None,
    ends: Ends = "broken",
    grain: Grain = "run",
) -> int:
    """Break the scenario's target before every step; return how many steps were tried.

    `check` sees what the scenario returned, after the untouched run too; it fails by raising or by returning False.
    With `ends="broken"` the target must end by the fault itself: a swallowed cancel is a failure. The grain `run`
    cancels before every step of the whole loop while the target lives, `task` before the target's own steps only;
    a crash always strikes at the target's own steps.
    """
    if fault == "crash":
        grain = "task"
    first: Run[T] = Run(fault, grain, None)
    if problem := _problem(first, scenario, check, "anyhow"):
        raise SweepFailure(fault, [Failure(0, "no fault at all", problem)], 0)
    failures = []
    for step in range(first.steps):
        run: Run[T] = Run(fault, grain, step)
        if problem := _problem(run, scenario, check, ends):
            failures.append(Failure(step, run.line, problem))
    if failures:
        raise SweepFailure(fault, failures, first.steps)
    return first.steps


def _problem(run: Run[T], scenario: Scenario[T], check: Check[T] | None, ends: Ends) -> str:
    """Run the scenario once; tell what went wrong, or nothing."""
    try:
        result = run_with(lambda: scenario(run), Session(VirtualLoop(observer=run.observe)), "scenario")
        verdict = None if check is None else check(result)
    except Exception as error:  # noqa: BLE001 whatever a broken run raises is the finding
        return f"{type(error).__name__}: {error}"
    if verdict is False:
        return f"the check refuses {result!r}"
    return _misbehaviour(run, ends)


def _misbehaviour(run: Run[T], ends: Ends) -> str:
    """Judge how the target ended."""
    if run.target is None:
        return "the scenario started no target"
    if run.at is not None and not run.fired:
        return "this step never came again: the scenario is not deterministic"
    error = _error_of(run.target)
    by_fault = isinstance(error, (asyncio.CancelledError, Crash))
    if error is not None and not by_fault:
        return f"the target failed by {error!r}"
    if run.fired and not by_fault and ends == "broken":
        return f"the target swallowed the {run.fault} and went on"
    return ""


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()
