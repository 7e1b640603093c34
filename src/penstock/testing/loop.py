"""The virtual-time event loop: time jumps to the next timer when nothing is ready, one handle runs at each step.

An hour of timers costs milliseconds, and two runs of the same code take the same steps: tasks are named, hashed
and timers ordered by a sequence of this loop alone. A run in which nothing can ever happen again is a `Deadlock`,
one that spins without letting time pass is a `Livelock`; both name the tasks and the lines they wait on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from penstock.testing.stacks import describe_all

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from concurrent.futures import Executor
    from contextvars import Context

T = TypeVar("T")

START_S = 1000.0
"""Where virtual time begins: not at zero, so that an unset instant is not mistaken for now."""

_PURGE_AT = 64
_PATIENCE_TURNS = 20
_SETTLE_ITERATIONS = 1000


class Deadlock(AssertionError):
    """Nothing is ready, no timer is set, and the main task is not done."""


class Livelock(AssertionError):
    """The loop took too many steps without time moving: some task polls."""


class Chooser(Protocol):
    """Picks which of the ready handles runs next, by its index."""

    def __call__(self, ready: Sequence[asyncio.Handle], /) -> int:
        """Choose among these, of which there is at least one."""
        ...


class Observer(Protocol):
    """Sees each handle just before it runs."""

    def __call__(self, handle: asyncio.Handle, /) -> None:
        """Look at this handle; it has not run yet."""
        ...


class VirtualTask(asyncio.Task[T]):
    """A task hashed by its place in its loop, so that sets of tasks iterate alike in every run."""

    def __init__(self, seq: int, coro: Coroutine[Any, Any, T], **options: object) -> None:
        # Set first: asyncio hashes the task while it registers it.
        self.seq = seq
        super().__init__(coro, **options)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self.seq


class External:
    """Work under way outside the loop (a thread); virtual time stands still until `done`."""

    __slots__ = ("_loop", "label")

    def __init__(self, loop: VirtualLoop, label: str) -> None:
        self._loop = loop
        self.label = label

    def done(self, *_: object) -> None:
        """Mark the work as finished; callable from any thread, any number of times."""
        self._loop.end_external(self)


def task_of(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    """Name the task whose step this handle is, if it is one."""
    owner = getattr(getattr(handle, "_callback", None), "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def _refuse_sockets(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "the virtual loop has no sockets: connect protocols by penstock.testing.transport, "
        "or mark the test with @pytest.mark.real_loop"
    )


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop whose clock is a number and whose next step can be chosen."""

    # Inherited from BaseEventLoop, which keeps its queue and flag private.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    add_reader = add_writer = sock_connect = sock_accept = _refuse_sockets
    create_connection = create_unix_connection = _refuse_sockets
    create_server = create_unix_server = create_datagram_endpoint = _refuse_sockets

    def __init__(
        self,
        *,
        chooser: Chooser | None = None,
        observer: Observer | None = None,
        start_s: float = START_S,
        steps_limit: int = 1_000_000,
        thread_patience_s: float = 20.0,
    ) -> None:
        """Begin at `start_s`, first in first out unless a chooser says otherwise."""
        super().__init__()
        self.chooser = chooser
        self.observer = observer
        self.steps = 0
        """How many handles have run."""
        self.batch_left = 0
        """How many handles of the current iteration are still to run; 0 is an iteration boundary."""
        self.steps_limit = steps_limit
        """How many steps may pass at one instant before it is a livelock."""
        self.thread_patience_s = thread_patience_s
        """Real seconds to wait for threads; then, as on a real clock, timers go on without them, or it is a deadlock.

        Seconds in which the whole process stood still are not counted: its threads did not run either.
        """
        self._now = start_s
        self._instant_step = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_cancelled = 0
        self._order = itertools.count()
        self._births = itertools.count(1)
        # Work that time waits for, and work it has given up on; as keys, for their order.
        self._external: dict[External, None] = {}
        self._stuck: dict[External, None] = {}
        self._woken = threading.Event()
        self._signals: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self.set_task_factory(_make_task)

    # -- time and timers ---------------------------------------------------------------------------------------

    def time(self) -> float:
        """Tell the virtual instant."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass at once, as a slow synchronous step would; timers that fall due run afterwards."""
        if seconds < 0:
            raise ValueError("time only moves forward")
        self._now += seconds
        self._instant_step = self.steps

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at this instant; equal instants run in the order they were asked for."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > _PURGE_AT and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled() and entry[2] is not handle]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def next_timer(self) -> float | None:
        """Tell when the next live timer falls due."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
            self._timers_cancelled = max(0, self._timers_cancelled - 1)
        return self._timers[0][0] if self._timers else None

    def _release_due(self) -> None:
        while (when := self.next_timer()) is not None and when <= self._now:
            timer = heapq.heappop(self._timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)

    # -- steps -------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one iteration: what is ready now, not what becomes ready by it, as the stock loop does."""
        if not self._ready and not self._stopping:
            self._idle()
        if self._timers:
            self._release_due()
        self.batch_left = len(self._ready)
        while self.batch_left:
            self.batch_left -= 1
            self._step()
        if self.steps - self._instant_step > self.steps_limit:
            self._instant_step = self.steps
            raise Livelock(f"{self.steps_limit} steps at {self._now:.3f} s without time moving:\n{self._tasks_told()}")

    def _step(self) -> None:
        handle = self._ready.popleft() if self.chooser is None else self._choose(self.chooser)
        if handle is None or handle.cancelled():
            return
        self.steps += 1
        if self.observer is not None:
            self.observer(handle)
        handle._run()

    def _choose(self, chooser: Chooser) -> asyncio.Handle | None:
        for handle in [handle for handle in self._ready if handle.cancelled()]:
            self._ready.remove(handle)
        if not self._ready:
            return None
        index = chooser(self._ready)
        handle = self._ready[index]
        del self._ready[index]
        return handle

    def _idle(self) -> None:
        """Nothing is ready: wait for threads, else jump to the next timer, else there is no way on."""
        while not self._ready:
            when = self.next_timer()
            if when is None:
                # Even a stuck thread may yet answer, and nothing else can.
                self._external |= self._stuck
            if self._external and self._wait_for_threads():
                continue
            if when is None:
                raise Deadlock(self._no_way_on())
            self._now = max(self._now, when)
            self._instant_step = self.steps
            return

    def _no_way_on(self) -> str:
        threads = "".join(f"  thread: {work.label}\n" for work in self._stuck)
        return f"nothing can happen any more at {self._now:.3f} s; pending:\n{threads}{self._tasks_told()}"

    def settle(self) -> None:
        """Run what is ready, and what that makes ready, without letting time pass; the loop must not be running."""
        for _ in range(_SETTLE_ITERATIONS):
            if not self._ready:
                return
            self.call_soon(self.stop)
            self.run_forever()

    def _tasks_told(self) -> str:
        return describe_all(asyncio.all_tasks(self)) or "  no task"

    # -- threads -----------------------------------------------------------------------------------------------

    def external(self, label: str) -> External:
        """Announce work outside the loop, so that time waits for it; end it by its `done`."""
        work = External(self, label)
        self._external[work] = None
        return work

    def end_external(self, work: External) -> None:
        """Forget this work and look again at what is ready."""
        self._external.pop(work, None)
        self._stuck.pop(work, None)
        self._woken.set()

    def _wait_for_threads(self) -> bool:
        """Wait in real time until a thread calls back; after that much patience the work counts as stuck."""
        turns_left = _PATIENCE_TURNS
        while not self._ready and self._external:
            self._woken.clear()
            # Looked at again after the clear: a callback that came just before it must not be slept through.
            if self._ready or self._woken.wait(self.thread_patience_s / _PATIENCE_TURNS):
                continue
            turns_left -= 1
            if not turns_left:
                self._stuck |= self._external
                self._external.clear()
                return False
        return True

    def _write_to_self(self) -> None:
        self._woken.set()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run in a real thread; for the virtual clock it takes no time."""
        work = self.external(getattr(func, "__qualname__", repr(func)))
        try:
            future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        except BaseException:
            work.done()
            raise
        future.add_done_callback(work.done)
        return future

    async def shutdown_default_executor(self, *limit: float | None) -> None:
        """Join the default executor's threads, in real time."""
        work = self.external("shutdown_default_executor")
        try:
            # From 3.12 on it takes a limit; what is given here is passed on as it came.
            await super().shutdown_default_executor(*limit)
        finally:
            work.done()

    # -- signals: delivered by the test, never by the system ----------------------------------------------------

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: object) -> None:
        """Remember what to call when the test delivers this signal."""
        self._signals[sig] = (callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Forget this signal's callback; say whether there was one."""
        return self._signals.pop(sig, None) is not None

    def deliver_signal(self, sig: int) -> None:
        """Act as if the process had received this signal."""
        callback, args = self._signals[sig]
        self.call_soon(callback, *args)


def _make_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: object
) -> VirtualTask[T]:
    """Make a task named by its loop's own count: the interpreter's global one differs from run to run."""
    assert isinstance(loop, VirtualLoop)
    seq = next(loop._births)
    options["name"] = options.get("name") or f"task-{seq}"
    return VirtualTask(seq, coro, loop=loop, **options)  # type: ignore[arg-type]
