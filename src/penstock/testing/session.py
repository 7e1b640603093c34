"""Run coroutines on one loop and, at the end, find what they left behind."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import importlib
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.testing.leaks import Account, Finding, Leaks, hearing_drops
from penstock.testing.loop import Deadlock, Livelock, VirtualLoop
from penstock.testing.stacks import describe, describe_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

T = TypeVar("T")

WATCHDOG_S = 120.0
"""How long a test on the real clock may take: it ends one that hangs, on a machine that is busy with others too."""

_REAL_SETTLE_STEPS = 10
_REAL_CANCEL_S = 1.0


class Watchdog(AssertionError):
    """A test on the real clock took longer than its limit."""


class _Dog:
    """Waits for a task's time to be up; then says what is pending, cancels it, and at last stops the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], limit_s: float) -> None:
        self.barked = ""
        self._loop, self._task, self._limit_s = loop, task, limit_s
        self._timers = [loop.call_later(limit_s, self._bark), loop.call_later(limit_s + _REAL_CANCEL_S, loop.stop)]

    def _bark(self) -> None:
        self.barked = f"not done after {self._limit_s} s; pending:\n{describe_all(asyncio.all_tasks(self._loop))}"
        self._task.cancel()

    def rest(self) -> None:
        for timer in self._timers:
            timer.cancel()


VERDICTS = (Deadlock, Livelock, Watchdog, Leaks)
"""The errors that are the kit's own judgement: their message says all, their traceback nothing."""


def new_real_loop(kind: str | None = None) -> asyncio.AbstractEventLoop:
    """Make a loop on the real clock: uvloop when installed, unless one kind is asked for."""
    if kind not in {None, "uvloop", "asyncio"}:
        raise ValueError(f'real_loop(loop=...) is "uvloop" or "asyncio", not {kind!r}')
    if kind == "asyncio":
        return asyncio.new_event_loop()
    try:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        if kind == "uvloop":
            raise
        return asyncio.new_event_loop()
    return loop


class Session:
    """One loop, one context, and an account of everything that went wrong on them.

    Coroutines given to `run` follow each other on the same loop and see each other's context variables, as the
    fixtures of a test and the test itself must. `close` ends the session and raises `Leaks`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, watchdog_s: float = WATCHDOG_S) -> None:
        """Take the loop over; a fresh virtual one when none is given."""
        self.loop = VirtualLoop() if loop is None else loop
        self._watchdog_s = watchdog_s
        self._context = contextvars.copy_context()
        self._found: list[Finding] = []
        self.loop.set_exception_handler(self._on_exception)
        self._account = Account()
        # What exists already is no concern of this session: the collection at its end looks at what came since.
        gc.freeze()

    def run(self, coro: Coroutine[Any, Any, T], *, name: str = "main") -> T:
        """Run one coroutine to its end."""
        with self._recording():
            task = self.loop.create_task(coro, name=name, context=self._context)
            try:
                return self._run_watched(task)
            finally:
                self._cut(task)

    def _cut(self, task: asyncio.Task[Any]) -> None:
        """End a task whose run was cut by a verdict: the verdict names it already, it is no leak."""
        if not task.done():
            task.cancel()
            self._settle()

    def _run_watched(self, task: asyncio.Task[T]) -> T:
        if isinstance(self.loop, VirtualLoop):
            return self.loop.run_until_complete(task)
        watchdog = _Dog(self.loop, task, self._watchdog_s)
        try:
            result = self.loop.run_until_complete(task)
        except (asyncio.CancelledError, RuntimeError):
            if not watchdog.barked:
                raise
        else:
            if not watchdog.barked:
                return result
        finally:
            watchdog.rest()
        raise Watchdog(watchdog.barked)

    def close(self) -> None:
        """End the session; raise `Leaks` when something was left behind. A second call does nothing."""
        if self.loop.is_closed():
            return
        with self._recording():
            try:
                leaked = self._leaked_tasks() + self._account.still_open()
            finally:
                self._shut_down()
            # What sits in a reference cycle reports its end only when collected: do it before the next test begins.
            gc.collect()
            gc.unfreeze()
        if findings := leaked + self._found:
            raise Leaks(findings)

    def _leaked_tasks(self) -> list[Finding]:
        self._settle()
        tasks = asyncio.all_tasks(self.loop)
        found = [Finding("leaked task", line) for line in sorted(describe(task) for task in tasks)]
        if tasks:
            self._cancel(tasks)
        return found

    def _settle(self) -> None:
        """Let what is ready run, so that a task cancelled in the last step may end."""
        if isinstance(self.loop, VirtualLoop):
            self.loop.settle()
            return
        for _ in range(_REAL_SETTLE_STEPS):
            self.loop.run_until_complete(asyncio.sleep(0))

    def _cancel(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        try:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=_REAL_CANCEL_S))
        except (Deadlock, Livelock) as stuck:
            self._found.append(Finding("task that cannot be cancelled", str(stuck)))

    def _shut_down(self) -> None:
        try:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self._settle()
        except (Deadlock, Livelock) as stuck:
            self._found.append(Finding("shutdown", str(stuck)))
        finally:
            self.loop.close()

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message"))
        if message == "Task was destroyed but it is pending!":
            kind = "lost task"
        else:
            kind = "unobserved exception" if "never retrieved" in message else "exception in the loop"
        subject = context.get("task") or context.get("future") or context.get("handle") or context.get("protocol")
        name = subject.get_name() if isinstance(subject, asyncio.Task) else repr(subject)
        self._found.append(Finding(kind, f"{message} ({name}): {context.get('exception')!r}"))

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Keep the warnings of destructors as findings; hand all others on to whoever listens."""
        with warnings.catch_warnings(record=True) as warned, hearing_drops(self._found):
            # Seen every time, and never turned into an error that a destructor could only print.
            warnings.filterwarnings("always", r"coroutine .* was never awaited", RuntimeWarning)
            warnings.filterwarnings("always", r"unclosed", ResourceWarning)
            try:
                yield
            finally:
                self._found += [finding for warning in warned if (finding := _finding(warning))]
        for warning in warned:
            if _finding(warning) is None:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _finding(warning: warnings.WarningMessage) -> Finding | None:
    text = str(warning.message).partition("\n")[0]
    if issubclass(warning.category, RuntimeWarning) and text.endswith("was never awaited"):
        return Finding("coroutine never awaited", text)
    if issubclass(warning.category, ResourceWarning) and text.startswith("unclosed"):
        return Finding("unclosed resource", text)
    return None


def run(coro: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run one coroutine on a virtual loop (or this one) and demand that it leaves nothing behind."""
    return run_with(lambda: coro, Session(loop))


def run_with(make: Callable[[], Coroutine[Any, Any, T]], session: Session, name: str = "main") -> T:
    """Run in this session and close it; an error of the run itself is raised, with what was left as a note."""
    try:
        result = session.run(make(), name=name)
    except BaseException as error:
        close_quietly(session, error)
        raise
    session.close()
    return result


def close_quietly(session: Session, error: BaseException) -> None:
    """Close a session that already failed; what it left behind becomes a note on the error."""
    try:
        session.close()
    except Leaks as left:
        error.add_note(str(left))
