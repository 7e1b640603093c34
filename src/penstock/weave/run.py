"""One schedule of a program, from its first step to the judgement on how it ended."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.weave.loop import Livelock, Mode, Refused, Step, WeaveLoop
from penstock.weave.outside import OutOfTime
from penstock.weave.promises import Broken, Promises
from penstock.weave.report import Ending, Kind
from penstock.weave.trace import where_tasks_wait

if TYPE_CHECKING:
    from penstock.weave.loop import WeaveTask
    from penstock.weave.search import ExploreSettings

Program = Callable[[], Coroutine[Any, Any, object]]
Pick = Callable[[WeaveLoop, list[Step]], int]

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_OUTCOME_CHARS = 300


class Pruned(Exception):
    """The rest of this schedule is known already."""


class ScheduleRun:
    """One run of a program under a picker."""

    loop_class: type[WeaveLoop] = WeaveLoop

    def __init__(self, program: Program, pick: Pick, mode: Mode, reached: dict[str, bool]) -> None:
        self.program = program
        self.loop = self.loop_class(pick, mode)
        self.promises = Promises(self.loop, reached)
        self.loop.promises = self.promises

    def follow(self, settings: ExploreSettings) -> None:
        """Take over what the settings say of a run."""
        self.loop.prompt_threads = settings.threads == "prompt"
        if settings.refines is not None:
            settings.refines.attach(self.promises)

    def go(self) -> Ending:
        """Run to the end and judge; raises `Pruned`, `Refused` or `OutOfTime` when there is nothing to judge."""
        loop = self.loop
        outer = asyncio._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(loop)
        generators: Any = loop
        sys.set_asyncgen_hooks(generators._asyncgen_firstiter_hook, generators._asyncgen_finalizer_hook)
        try:
            main = loop.create_task(self._main(), name="main", context=contextvars.Context())
            return self._judged(main)  # type: ignore[arg-type]
        finally:
            try:
                loop.close_down()
            finally:
                sys.set_asyncgen_hooks(*hooks)
                asyncio._set_running_loop(outer)

    def _main(self) -> Coroutine[Any, Any, object]:
        coro = self.program()
        if not inspect.iscoroutine(coro):
            raise TypeError(f"{self.program!r} is no async function without arguments")
        return coro

    def _judged(self, main: WeaveTask[Any]) -> Ending:
        try:
            self.loop.drive(main)
        except Broken as broken:
            return Ending("assertion", str(broken), f"AssertionError: {broken}")
        except Livelock as stuck:
            where = where_tasks_wait(self.loop)
            return Ending("livelock", f"{stuck}: {where}", f"livelock: {where}")
        except SystemExit as error:
            return _raised(error, " (the program asks the interpreter to exit)")
        if self.loop.expired:
            raise OutOfTime
        return self._ending(main)

    def _ending(self, main: WeaveTask[Any]) -> Ending:
        """Judge a run that came to rest."""
        if not main.done():
            where = where_tasks_wait(self.loop)
            return Ending("deadlock", f"nothing can happen any more: {where}", f"deadlock: {where}")
        if main.cancelled():
            return Ending("exception", "main was cancelled", "CancelledError")
        if (error := main.exception()) is not None:
            return _raised(error, "")
        for problem in self.loop.problems:
            if (error := problem.get("exception")) is not None:
                return _raised(error, f" ({_subject(problem)}: {problem['message']})")
        for ref in self.loop.births:
            task = ref()
            if task is not None and task.done() and task._log_traceback:
                error = task.exception()
                assert error is not None
                return _raised(error, f" (in {task.get_name()}, and nobody looked at it)")
        if self.loop.pending_tasks():
            where = where_tasks_wait(self.loop)
            return Ending("leak", f"main has returned, but tasks are left: {where}", f"leak: {where}")
        if self.promises.due:
            names = ", ".join(self.promises.due)
            return Ending("assertion", f"eventually: {names} never came true", f"AssertionError: never {names}")
        return Ending("", "", f"returned {_told(main.result())}")


def _subject(problem: dict[str, Any]) -> str:
    for key in ("task", "future", "handle"):
        if (subject := problem.get(key)) is not None:
            return subject.get_name() if isinstance(subject, asyncio.Task) else key
    return "loop"


def _raised(error: BaseException, where: str) -> Ending:
    name, text = type(error).__name__, _text_of(error)
    # How deep is too deep is told in other words from run to run.
    told = f"{name}: {text}" if text and not isinstance(error, RecursionError) else name
    kind: Kind = "assertion" if _asserts(error) else "exception"
    return Ending(kind, f"{told}{where}{_place(error)}", _ADDRESS.sub("0x", told)[:_OUTCOME_CHARS])


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as inner:  # noqa: BLE001 whatever an exception of the program raises when it is printed
        return f"(it cannot be printed: {type(inner).__name__})"


def _asserts(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_asserts(inner) for inner in error.exceptions)
    return isinstance(error, AssertionError)


def _place(error: BaseException) -> str:
    """Name the line that raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    traceback = error.__traceback__
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f" [{traceback.tb_frame.f_code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}]"


def _told(value: object) -> str:
    try:
        return _ADDRESS.sub("0x", repr(value))[:_OUTCOME_CHARS]
    except Exception as error:  # noqa: BLE001 whatever an object of the program raises when it is printed
        return f"a {type(value).__name__} that cannot be printed: {type(error).__name__}"


__all__ = ["Pick", "Program", "Pruned", "Refused", "ScheduleRun"]
