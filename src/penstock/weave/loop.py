"""The loop that weave drives: one step at a time, and a picker decides which of the possible steps comes next.

A *step* is what the loop does between two of its own decisions: one task runs from one `await` to the next, or one
callback runs. The loop keeps the steps that are ready, the timers, and the outside events that may happen at any
moment. In mode `any` it offers every ready task step, the oldest plain callback, every timer that is due and every
outside event. In mode `fifo` it runs what is ready in the order of asyncio and offers a choice only where asyncio has
none of its own: outside events at the boundary of an iteration, and the order of timers due at one instant. Mode
`chaos` also lets plain callbacks overtake each other. Time moves only when nothing is ready.

Tasks are named by who made them and how many it had made before (`task-1.2` is the second task of the first task of
main), so a task keeps its name in every schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import types
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.testing.loop import Deadlock, Livelock, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Executor
    from contextvars import Context

T = TypeVar("T")

Mode = Literal["any", "fifo", "chaos"]
Picker = "Callable[[WeaveLoop, Sequence[Step]], int]"
Path = tuple[int, ...]

TASK, PLAIN, TIMER, EVENT, TIME = range(5)

INSTANT_STEPS_MAX = 5_000
"""How many steps may pass at one instant before it is a livelock."""
RUN_STEPS_MAX = 10_000
"""How many steps a schedule may have."""

_BUILTIN = types.BuiltinMethodType


class Refused(Exception):
    """The program does something that weave cannot explore; the message says what and where."""


class Step(asyncio.TimerHandle):
    """A callback that the loop will run once, now or at its instant, and what weave knows of it."""

    __slots__ = ("births", "calls", "kind", "maker", "nth", "task")

    def __init__(
        self, callback: Callable[..., object], args: Sequence[Any], loop: WeaveLoop, context: Context | None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._cancelled = False
        self._args = args
        self._repr = None
        self._source_traceback = None
        self._when = 0.0
        self._scheduled = False
        self.births = self.calls = 0
        self.place(loop.owner)

    def place(self, maker: Owner) -> None:
        """Tell a task's step from a plain callback, and remember who asked for it."""
        callback: Any = self._callback
        kind = type(callback)
        if (kind is _BUILTIN and callback.__name__ == "task_wakeup") or kind.__name__ == "TaskStepMethWrapper":
            self.kind, self.task = TASK, callback.__self__
            self.maker, self.nth = maker, 0
            return
        self.kind, self.task = PLAIN, None
        maker.calls += 1
        self.maker, self.nth = maker, maker.calls

    @property
    def path(self) -> Path:
        """Name this step by its maker, alike in every schedule."""
        return self.task.path if self.task is not None else (*self.maker.path, -self.nth)

    # Two timers for the same instant are two timers.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class LoopOrigin:
    """The maker of the main task."""

    path: Path = ()
    births = 0
    calls = 0


class WeaveTask(asyncio.Task[T]):
    """A task that knows its place in the tree of tasks."""

    def __init__(self, path: Path, coro: Coroutine[Any, Any, T], context: Context, **options: object) -> None:
        # Set first: asyncio hashes the task while it registers it.
        self.path = path
        self.births = self.calls = 0
        self.context = context
        super().__init__(coro, context=context, **options)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(self.path)


class WeaveFuture(asyncio.Future[T]):
    """A future hashed by a sequence of its loop, so that sets of futures iterate alike in every run."""

    _seq = 0

    def __hash__(self) -> int:
        if not self._seq:
            loop = self.get_loop()
            assert isinstance(loop, WeaveLoop)
            loop.hashed += 1
            self._seq = loop.hashed
        return self._seq


Owner = WeaveTask[Any] | Step | LoopOrigin


class WeaveLoop(VirtualLoop):
    """An asyncio loop on virtual time whose every decision is the picker's."""

    future_class: type[WeaveFuture[Any]] = WeaveFuture
    task_class: type[WeaveTask[Any]] = WeaveTask
    step_class: type[Step] = Step

    def __init__(self, pick: Callable[[WeaveLoop, list[Step]], int], mode: Mode = "any") -> None:
        self.owner: Owner = LoopOrigin()
        super().__init__()
        self.pick = pick
        self.mode: Mode = mode
        self.hashed = 0
        self.clock_read = False
        """Whether the program looked at the clock: then the instant is part of its state."""
        self.events: list[Step] = []
        self.released: list[Step] = []
        """Timers that are due and not ready yet, while their order is chosen."""
        self.births: list[weakref.ref[WeaveTask[Any]]] = []
        self.problems: list[dict[str, Any]] = []
        """What asyncio reported to its exception handler."""
        self.refusal = ""
        self.expired = False
        self.promises: Any = None
        self.main: WeaveTask[Any] | None = None
        self.after: list[Callable[[Step], None]] = []
        """What looks at the world after each step."""
        self.before: Callable[[Step], None] | None = None
        self.over = False
        self.still = False
        """While set, nothing is chosen: the program sets its world up."""
        self.prompt_threads = False
        """Whether time waits for work in threads, or may pass while they work."""
        self.always_pick = False
        """Whether the picker is asked where there is only one option."""
        self._batch = 0
        self._same_instant = 0
        self._time = Step(self._pass_time, (), self, contextvars.Context())
        self._time.kind = TIME

    # -- what asyncio asks of a loop ---------------------------------------------------------------------------

    def time(self) -> float:
        """Tell the virtual instant, and note who asks: asyncio itself keeps only differences."""
        if not self.clock_read and not sys._getframe(1).f_globals.get("__name__", "").startswith(
            ("asyncio.", "penstock.weave")
        ):
            self.clock_read = True
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Make the callback ready."""
        step = self.step_class(callback, args, self, context)
        if not self.over:
            self._ready.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at this instant."""
        timer = self.step_class(callback, args, self, context)
        timer.kind = TIMER
        timer._when = when
        timer._scheduled = True
        if not self.over:
            self.push_timer(timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future that belongs to this loop."""
        return self.future_class(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Make a task named after its maker."""
        owner = self.owner
        owner.births += 1
        path = () if isinstance(owner, LoopOrigin) else (*owner.path, owner.births)
        if name is None:
            name = "task-" + ".".join(map(str, path)) if path else "main"
        context = contextvars.copy_context() if context is None else context
        task = self.task_class(path, coro, context, loop=self, name=name)
        self.births.append(weakref.ref(task))
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Do the work as an outside event: it runs whole, at any moment the picker likes."""
        future: asyncio.Future[T] = self.create_future()
        self.add_event(_settle, future, func, args)
        return future

    async def shutdown_default_executor(self, *limit: float | None) -> None:
        """Do nothing: there are no threads."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what asyncio reports; it decides the verdict of this schedule."""
        if not self.over:
            self.problems.append(context)

    def _refuse(self, *_: object, **__: object) -> Any:  # noqa: ANN401 it never returns
        self.refusal = "the program opens a socket; give it an in-memory transport (penstock.testing.transport)"
        raise Refused(self.refusal)

    add_reader = add_writer = sock_connect = sock_accept = _refuse
    create_connection = create_unix_connection = _refuse
    create_server = create_unix_server = create_datagram_endpoint = _refuse
    connect_read_pipe = connect_write_pipe = _refuse

    def _refuse_process(self, *_: object, **__: object) -> Any:  # noqa: ANN401 it never returns
        self.refusal = "the program starts a process"
        raise Refused(self.refusal)

    subprocess_exec = subprocess_shell = _refuse_process

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: what was cancelled is passed over when its turn comes."""

    # -- outside events ----------------------------------------------------------------------------------------

    def add_event(self, callback: Callable[..., object], *args: object) -> Step:
        """Let this happen once, at any moment from now on."""
        step = self.step_class(callback, args, self, contextvars.copy_context())
        step.kind = EVENT
        if not self.over:
            self.events.append(step)
        return step

    def live_events(self) -> list[Step]:
        """List the outside events that have not happened; none matters after the end of main."""
        if not self.events or (self.main is not None and self.main.done()):
            return []
        return [step for step in self.events if not step._cancelled]

    # -- driving -----------------------------------------------------------------------------------------------

    def drive(self, main: WeaveTask[Any]) -> None:
        """Run until main has returned and no step is ready, or until nothing can happen any more."""
        self.main = main
        take = self._take_in_order if self.mode == "fifo" else self._take_any
        while not (self.refusal or self.expired):
            step = take()
            if step is None:
                return
            if not step._cancelled:
                self.run_step(step)
        if self.refusal:
            raise Refused(self.refusal)

    def run_step(self, step: Step) -> None:
        """Run one step, then let the observers look at the world."""
        self.steps += 1
        self._same_instant += 1
        if self._same_instant > INSTANT_STEPS_MAX:
            raise Livelock(f"{INSTANT_STEPS_MAX} steps without time moving")
        if self.steps > RUN_STEPS_MAX:
            raise Livelock(f"{RUN_STEPS_MAX} steps and no end")
        self.owner = step if step.task is None else step.task
        if self.before is not None:
            self.before(step)
        try:
            step._context.run(step._callback, *step._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 as asyncio reports what a callback raises
            self.call_exception_handler({"message": "exception in a callback", "exception": error, "handle": step})
        for look in self.after:
            look(step)

    def _take_any(self) -> Step | None:
        while True:
            if self._timers:
                self.release_due()
            ready = self.ready_options()
            events = self.live_events() if self.events else []
            if not ready and not events:
                if self._pass_time():
                    continue
                return None
            options = ready + events if events else ready
            if not ready and self.next_timer() is not None and not self._work_outside(events):
                # Last: where nothing else is to be done, what happens outside is rather done than late.
                options.append(self._time)
            forced = len(options) == 1 or self.still
            choice = 0 if forced and not self.always_pick else self.pick(self, options)
            step = options[choice]
            if step.kind != TIME:
                self._remove(step)
            return step

    def _take_in_order(self) -> Step | None:
        ready = self._ready
        while not self._batch:
            events = self.live_events()
            if events:
                options = [self._time, *events] if ready else events
                if not ready and self.next_timer() is not None and not self._work_outside(events):
                    options = [*events, self._time]
                step = options[0] if len(options) == 1 or self.still else options[self.pick(self, options)]
                if step.kind != TIME:
                    self.events.remove(step)
                    ready.append(step)
                    continue
            if not ready and not self._pass_time():
                return None
            if self._timers:
                self._release_in_some_order()
            self._batch = len(ready)
        self._batch -= 1
        return ready.popleft()  # type: ignore[return-value]

    def _work_outside(self, events: list[Step]) -> bool:
        """Tell whether time has to wait for a thread."""
        return self.prompt_threads and any(step._callback is _settle for step in events)

    def ready_options(self) -> list[Step]:
        """List what may run next in the modes `any` and `chaos`, the oldest first."""
        ready: Any = self._ready
        options: list[Step] = []
        plain_seen = False
        for step in ready:
            if step._cancelled:
                continue
            if step.kind == PLAIN and self.mode != "chaos":
                if plain_seen:
                    continue
                plain_seen = True
            options.append(step)
        return options

    def _remove(self, step: Step) -> None:
        queue: Any = self.events if step.kind == EVENT else self._ready
        for index, other in enumerate(queue):
            if other is step:
                del queue[index]
                return

    # -- time --------------------------------------------------------------------------------------------------

    def push_timer(self, timer: Step) -> None:
        """File a timer."""
        order = next(self._order)
        entry = (timer._when, order, timer)
        at = len(self._timers)
        # Few timers live at once: a sorted list is faster than a heap, and is read in order by the fingerprint.
        while at and self._timers[at - 1][:2] > entry[:2]:
            at -= 1
        self._timers.insert(at, entry)

    def next_timer(self) -> float | None:
        """Tell when the next live timer falls due."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            del timers[0]
        return timers[0][0] if timers else None

    def release_due(self) -> list[Step]:
        """Make ready every timer whose instant has come."""
        released: list[Step] = []
        while (when := self.next_timer()) is not None and when <= self._now:
            timer = self._timers.pop(0)[2]
            assert isinstance(timer, Step)
            timer._scheduled = False
            released.append(timer)
        self._ready.extend(released)
        return released

    def _release_in_some_order(self) -> None:
        """Make the due timers ready; those for the same instant in any order."""
        self.released = released = self.release_due()
        for _ in released:
            self._ready.pop()
        while released:
            same = [step for step in released if step._when == released[0]._when]
            step = same[0] if len(same) == 1 or self.still else same[self.pick(self, same)]
            released.remove(step)
            self._ready.append(step)

    def _pass_time(self) -> bool:
        """Jump to the next timer, if the run may still wait for it."""
        when = self.next_timer()
        main = self.main
        if main is not None and main.done():
            pending = self.pending_tasks()
            if not pending or not all(task.cancelling() for task in pending):
                return False
        if when is None:
            return False
        self._now = max(self._now, when)
        self._same_instant = 0
        return True

    # -- what is there -----------------------------------------------------------------------------------------

    def pending_tasks(self) -> list[WeaveTask[Any]]:
        """List the tasks that are not done, in the order of their names."""
        alive = []
        for ref in self.births:
            task = ref()
            if task is not None and not task.done():
                alive.append(task)
        self.births = [weakref.ref(task) for task in alive] if len(alive) * 2 < len(self.births) else self.births
        alive.sort(key=_path_of)
        return alive

    def close_down(self) -> None:
        """End what is left of the run without letting any of it act on the next one."""
        self.over = True
        for task in self.pending_tasks():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro: Any = task.get_coro()
            # Its `finally` is code of the user, and its run is over: whatever it raises concerns nobody.
            with contextlib.suppress(BaseException):
                task.context.run(coro.close)
        self._ready.clear()
        self._timers.clear()
        self.events.clear()
        self.after.clear()
        self.births.clear()
        self.problems.clear()
        self._asyncgens.clear()  # type: ignore[attr-defined]
        self.main = None
        self.owner = LoopOrigin()
        self.close()


def _path_of(task: WeaveTask[Any]) -> Path:
    return task.path


def _settle(future: asyncio.Future[Any], func: Callable[..., object], args: tuple[object, ...]) -> None:
    """Do outside work and hand its result over."""
    if future.done():
        return
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 as an executor does
        future.set_exception(error)
    else:
        future.set_result(result)


__all__ = ["Deadlock", "Livelock", "Mode", "Refused", "Step", "WeaveFuture", "WeaveLoop", "WeaveTask", "deque"]
