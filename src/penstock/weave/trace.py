"""Tell a schedule step by step: which task ran, in which file and line it went on, and what it had waited for."""

from __future__ import annotations

import asyncio
import linecache
import os
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from penstock.testing.stacks import awaited_by, frame_of
from penstock.weave.loop import EVENT, TIME, TIMER, Step, WeaveLoop

if TYPE_CHECKING:
    from types import FrameType

_LIBRARY = os.path.dirname(asyncio.__file__)  # noqa: PTH120 compared with file names as the interpreter has them


class Tracer:
    """Writes one line for each step of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.departed: Step | None = None
        """The step that was chosen although another was older."""
        self._began: float | None = None

    def before(self, step: Step) -> None:
        """Tell of a step that is about to run."""
        loop = step._loop
        assert isinstance(loop, WeaveLoop)
        if self._began is None:
            self._began = loop._now
        mark = "*" if step is self.departed else " "
        who, what = _told(step)
        self.lines.append(f"{mark}{len(self.lines) + 1:>3} {loop._now - self._began:>8.3f}s  {who:<14} {what}")


def _told(step: Step) -> tuple[str, str]:
    if step.task is not None:
        return step.task.get_name(), _where(step.task)
    if step.kind == TIME:
        return "(time)", "passes to the next timer"
    who = {EVENT: "(event)", TIMER: "(timer)"}.get(step.kind, "(callback)")
    return who, _callback_told(step)


def _callback_told(step: Step) -> str:
    callback: Any = step._callback
    callback = getattr(callback, "func", callback)
    name = getattr(callback, "__qualname__", None) or repr(callback)
    code = getattr(getattr(callback, "__func__", callback), "__code__", None)
    place = f" ({_short(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
    if name == "_set_result_unless_cancelled":
        return "a sleep is over"
    return f"{name}{place}"


def _where(task: asyncio.Task[Any]) -> str:
    """Tell where a task goes on, as the deepest line that is not asyncio's own, and what it waited for there."""
    frames: list[FrameType] = []
    coro: Any = task.get_coro()
    while coro is not None and (frame := frame_of(coro)) is not None:
        frames.append(frame)
        coro = awaited_by(coro)
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith(_LIBRARY)] or frames[:1]
    if not own:
        return "ends"
    frame = own[-1]
    deeper = frames[frames.index(frame) + 1 :]
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    place = f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"
    if frame.f_lasti < 0 or (len(frames) == 1 and coro is None and _not_begun(frame)):
        return f"{_short(frame.f_code.co_filename)}:{frame.f_code.co_firstlineno} in {frame.f_code.co_name}: begins"
    waited = deeper[0].f_code.co_qualname if deeper else _awaited(task, coro)
    thrown = ", is cancelled" if task._must_cancel or _waits_for_cancelled(task) else ""  # type: ignore[attr-defined]
    return f"{place}: `{line}` had waited for {waited}{thrown}"


def _not_begun(frame: FrameType) -> bool:
    return frame.f_lineno == frame.f_code.co_firstlineno


def _waits_for_cancelled(task: asyncio.Task[Any]) -> bool:
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is not None and waiter.cancelled()


def _awaited(task: asyncio.Task[Any], awaited: object) -> str:
    waiter = getattr(task, "_fut_waiter", None)
    if isinstance(waiter, asyncio.Task):
        return f"task {waiter.get_name()}"
    return "a turn of the loop" if awaited is None and waiter is None else "a future"


def _short(filename: str) -> str:
    path = PurePath(filename)
    return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


def where_tasks_wait(loop: WeaveLoop) -> str:
    """List the pending tasks and the lines they wait at."""
    tasks = loop.pending_tasks()
    return "; ".join(f"{task.get_name()} at {_where(task)}" for task in tasks) or "no task is left"


def where_called() -> str:
    """Name the line of the program that called into weave's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("penstock.weave", "asyncio.", "random", "threading", "socket", "uuid", "secrets")):
            return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown place"
