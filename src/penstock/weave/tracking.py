"""Know which shared objects each step touches: what the strategy `dpor` stands on.

Two steps that touch nothing in common can be swapped without a difference, so only one of their orders is tried. That
is sound only if every object that tasks share is tracked. Tracked are futures, tasks, the primitives of asyncio, those
of the kernel, and `weave.Cell`; a class of your own is tracked when it is named in `tracks`. An object is tracked as a
whole, and every access counts as a write.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks, timeouts
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.kernel.broadcast import Broadcast
from penstock.kernel.channel import Channel
from penstock.kernel.limiter import Limiter
from penstock.kernel.watch import Watch, WatchReceiver
from penstock.kernel.worker import Job
from penstock.weave.loop import PLAIN, Step, WeaveFuture, WeaveLoop, WeaveTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context

T = TypeVar("T")

CALLBACKS = -1
"""The queue of plain callbacks: whoever adds to it changes the order of what follows."""


class Footprint:
    """What the current step has touched, by numbers that are the same in every run with the same choices."""

    def __init__(self) -> None:
        self.touched: set[int] = set()
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []

    def touch(self, thing: object) -> None:
        """Note an access; the first one, when the object is made, gives it its number."""
        number = self._numbers.get(id(thing))
        if number is None:
            self._kept.append(thing)
            number = self._numbers[id(thing)] = len(self._kept)
        self.touched.add(number)


_active: Footprint | None = None


def _touch(thing: object) -> None:
    if _active is not None:
        _active.touch(thing)


class Cell(Generic[T]):
    """A shared variable that weave can see: read and write it by `value`."""

    def __init__(self, value: T) -> None:
        self._value = value
        _touch(self)

    @property
    def value(self) -> T:
        """Read the value."""
        _touch(self)
        return self._value

    @value.setter
    def value(self, value: T) -> None:
        _touch(self)
        self._value = value

    def __repr__(self) -> str:
        """Show the value."""
        return f"Cell({self._value!r})"


TRACKED: tuple[type, ...] = (
    asyncio.Queue,
    asyncio.PriorityQueue,
    asyncio.LifoQueue,
    asyncio.Lock,
    asyncio.Event,
    asyncio.Semaphore,
    asyncio.BoundedSemaphore,
    asyncio.Condition,
    asyncio.Barrier,
    asyncio.TaskGroup,
    timeouts.Timeout,
    tasks._GatheringFuture,  # type: ignore[attr-defined]
    Broadcast,
    Channel,
    Job,
    Limiter,
    Watch,
    WatchReceiver,
)


@contextmanager
def tracking(classes: tuple[type, ...]) -> Iterator[None]:
    """Have every attribute access on objects of these classes noted, for as long as the search lasts."""
    patched = [kind for kind in dict.fromkeys(classes) if "__getattribute__" not in vars(kind)]
    for kind in patched:
        kind.__getattribute__ = _noting_reads(kind)  # type: ignore[method-assign,assignment]
        kind.__setattr__ = _noting_writes(kind)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        for kind in patched:
            del kind.__getattribute__
            del kind.__setattr__


def _noting_reads(kind: type) -> Callable[[object, str], Any]:
    plain: Any = kind.__getattribute__

    def read(self: object, name: str) -> Any:  # noqa: ANN401 any attribute
        if _active is not None:
            _active.touch(self)
        return plain(self, name)

    return read


def _noting_writes(kind: type) -> Callable[[object, str, object], None]:
    plain: Any = kind.__setattr__

    def write(self: object, name: str, value: object) -> None:
        if _active is not None:
            _active.touch(self)
        plain(self, name, value)

    return write


def _touching(name: str, base: type) -> Callable[..., Any]:
    plain = getattr(base, name)

    def method(self: object, *args: object, **options: object) -> Any:  # noqa: ANN401 as the base
        _touch(self)
        return plain(self, *args, **options)

    method.__name__ = name
    return method


_FUTURE_METHODS = (
    "set_result",
    "set_exception",
    "cancel",
    "done",
    "result",
    "exception",
    "cancelled",
    "add_done_callback",
    "remove_done_callback",
    "__await__",
    "__iter__",
)


class TrackedFuture(WeaveFuture[T]):
    """A future whose every use is noted."""


class TrackedTask(WeaveTask[T]):
    """A task whose every use as a future is noted; to cancel it touches its steps too."""

    def __init__(self, path: tuple[int, ...], coro: Any, context: Context, **options: object) -> None:  # noqa: ANN401
        self.steps_key = object()
        super().__init__(path, coro, context, **options)

    def cancel(self, msg: object = None) -> bool:
        """Cancel, which decides how the task's next step goes."""
        _touch(self.steps_key)
        _touch(self)
        return super().cancel(msg)

    def uncancel(self) -> int:
        """Take one cancel back."""
        _touch(self.steps_key)
        return super().uncancel()

    def cancelling(self) -> int:
        """Count the cancels."""
        _touch(self.steps_key)
        return super().cancelling()


for _name in _FUTURE_METHODS:
    setattr(TrackedFuture, _name, _touching(_name, WeaveFuture))
    if _name != "cancel":
        setattr(TrackedTask, _name, _touching(_name, WeaveTask))


class TrackedStep(Step):
    """A step that knows which step made it, and tells when it is cancelled."""

    __slots__ = ("made_at",)

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 as Step
        super().__init__(*given)
        loop = self._loop
        assert isinstance(loop, TrackedLoop)
        self.made_at = loop.steps_done

    def cancel(self) -> None:
        """Cancel; a step that was ready and now never runs could also have run first."""
        if not self._cancelled:
            loop = self._loop
            assert isinstance(loop, TrackedLoop)
            _touch(self)
            loop.cancelled_now.append(self)
        super().cancel()


class TrackedLoop(WeaveLoop):
    """The loop with a footprint for every step."""

    future_class = TrackedFuture
    task_class = TrackedTask
    step_class = TrackedStep

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 as WeaveLoop
        self.steps_done = 0
        self.footprint = Footprint()
        self.cancelled_now: list[TrackedStep] = []
        self.time_passed_at = 0
        """The step before which time passed last: everything before it came first."""
        self.on_step: Callable[[Step, set[int]], None] | None = None
        super().__init__(*given)
        self.always_pick = True

    def create_future(self) -> asyncio.Future[Any]:
        """Give the future its number while it is made."""
        future = super().create_future()
        self.footprint.touch(future)
        return future

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401 as WeaveLoop
        """Give the task its number while it is made."""
        task = super().create_task(coro, **options)
        assert isinstance(task, TrackedTask)
        self.footprint.touch(task)
        self.footprint.touch(task.steps_key)
        return task

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Make ready; a plain callback joins a queue that everybody shares."""
        step = super().call_soon(callback, *args, context=context)
        assert isinstance(step, Step)
        if step.kind == PLAIN:
            self.footprint.touched.add(CALLBACKS)
        return step

    call_soon_threadsafe = call_soon

    def run_step(self, step: Step) -> None:
        """Run a step and take its footprint."""
        global _active  # noqa: PLW0603 attribute access has no other place to report to
        footprint = self.footprint
        footprint.touched = set()
        self.cancelled_now = []
        task = step.task
        if task is not None:
            assert isinstance(task, TrackedTask)
            footprint.touch(task.steps_key)
        self.steps_done += 1
        _active = footprint
        try:
            super().run_step(step)
        finally:
            _active = None
        if task is not None and asyncio.Task.done(task):
            footprint.touch(task)
        if self.on_step is not None:
            self.on_step(step, footprint.touched)

    def _pass_time(self) -> bool:
        passed = super()._pass_time()
        if passed:
            self.time_passed_at = self.steps_done
        return passed
