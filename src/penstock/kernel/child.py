"""A supervised child: its specification as data, and its state while it lives."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from penstock.kernel.lifecycle import Shutdown
from penstock.kernel.restart import History, RestartPolicy
from penstock.kernel.scope import Scope

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.clock import Clock
    from penstock.kernel.inventory import Inventory

Channels = Sequence["Channel[Any]"]


class Drain(enum.Enum):
    """What a child does when the service drains."""

    STOP_INTAKE = "stop_intake"  # refuses new work, says quiet() when admitted work is answered, closes last
    FINISH = "finish"  # its channels are closed, it works them off and returns
    HALT = "halt"  # returns as soon as it hears


class ChildState(enum.Enum):
    """Where a child is."""

    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    QUARANTINED = "quarantined"
    PROBATION = "probation"  # back from quarantine, not yet trusted
    FATAL = "fatal"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A long-lived task, described: the supervisor makes, restarts and ends it."""

    name: str
    run: Callable[[Child], Awaitable[None]]
    _: KW_ONLY
    kind: str = ""
    instances: int = 1
    critical: bool = False
    drain: Drain = Drain.HALT
    # Waited for at start until it calls announce(); if it fails before that, the start fails with its error.
    announces: bool = False
    # What it receives from: closed when the service drains, suspended while it is quarantined. A callable
    # gives each instance its own.
    consumes: Channels | Callable[[int], Channels] = ()
    policy: RestartPolicy | None = None

    def channels(self, index: int) -> Channels:
        """Return what instance `index` receives from."""
        return self.consumes(index) if callable(self.consumes) else self.consumes

    @property
    def task_kind(self) -> str:
        """Return the `kind` label of the task metrics."""
        return self.kind or self.name


class Child:
    """One running instance of a spec; what `run` gets to see of its supervisor."""

    def __init__(self, spec: ChildSpec, index: int, inventory: Inventory) -> None:
        """Belong to a supervisor, which alone changes the state."""
        self.spec = spec
        self.index = index
        self.name = f"{spec.name}[{index}]" if spec.instances > 1 else spec.name
        self.shutdown = Shutdown(self.name)
        self.state = ChildState.STARTING
        self.history = History()
        self.restarts = 0
        self.killed = False
        self.last_error = ""
        self.task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self.announced: asyncio.Future[None] = loop.create_future()
        self.quieted: asyncio.Future[None] = loop.create_future()
        self._inventory = inventory
        self._scopes: dict[Scope, None] = {}
        self._probation: asyncio.TimerHandle | None = None
        self.working = not spec.announces  # whether this run has announced itself
        self.on_announce: Callable[[Child], None] | None = None
        self.cut: list[str] = []  # kinds of short-lived tasks that were cut off with it while it drained

    @property
    def clock(self) -> Clock:
        """Return the service's clock."""
        return self._inventory.clock

    @property
    def channels(self) -> Channels:
        """Return what this instance receives from."""
        return self.spec.channels(self.index)

    def announce(self) -> None:
        """Say that it works now: the next child may start."""
        self.working = True
        if not self.announced.done():
            self.announced.set_result(None)
        if self.on_announce is not None:
            self.on_announce(self)

    def quiet(self) -> None:
        """Say that no admitted work is left in its hands (STOP_INTAKE children, while draining)."""
        if not self.quieted.done():
            self.quieted.set_result(None)

    def scope(self, kind: str, limit: int) -> Scope:
        """Open a bounded place for short-lived tasks; it ends with this run of the child."""
        # A scope that was closed is forgotten: a child may open one for each request it serves.
        scope = Scope(kind, limit, self._inventory.metrics, on_end=lambda ended: self._scopes.pop(ended, None))
        self._scopes[scope] = None
        return scope

    # --- for the supervisor ----------------------------------------------------------------------------

    def begin(self, now: float, trusted: Callable[[Child], None], probation_s: float) -> None:
        """Note the start of a run; one that follows a quarantine is on probation first."""
        self.killed = False
        self.working = not self.spec.announces
        if self.quieted.done():
            # The last run's silence says nothing about this one: a drain must wait for what it admits.
            self.quieted = asyncio.get_running_loop().create_future()
        self.history = self.history.started(now)
        self._inventory.metrics.counter("tasks_spawned_total", "Tasks started.", kind=self.spec.task_kind).value += 1
        self.state = ChildState.PROBATION if self.history.quarantined else ChildState.RUNNING
        if self.history.quarantined:
            self._probation = asyncio.get_running_loop().call_later(probation_s, trusted, self)

    async def end(self) -> None:
        """End what belonged to this run: its scopes are cancelled and joined, its quiet is assumed."""
        self.state = ChildState.BACKOFF  # between two runs until the supervisor says more; nothing left to kill
        if self._probation is not None:
            self._probation.cancel()
        self.quiet()
        scopes = list(self._scopes)
        # All at once and before the first wait: an abort that arrives while waiting leaves none behind.
        for scope in scopes:
            # The tasks of whoever takes work in are admitted work; a background agent's own are only its hands.
            if self.shutdown.draining and self.spec.drain is Drain.STOP_INTAKE:
                self.cut += [scope.kind] * len(scope)
            scope.cancel()
        for scope in scopes:
            await scope.close()

    def kill(self) -> bool:
        """Crash the child as a test or an operator asks for; False when it is not running, or is crashing already.

        A second cancel before the first one arrived would be taken for the supervisor's own, which is for good.
        """
        if self.task is None or self.task.done() or self.state not in (ChildState.RUNNING, ChildState.PROBATION):
            return False
        if self.killed:
            return False
        self.killed = True
        return self.task.cancel()
