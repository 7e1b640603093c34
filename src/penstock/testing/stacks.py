"""Say where a suspended task waits: the coroutine chain from the task down to the future it awaits."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITS = ("cr_await", "gi_yieldfrom", "ag_await")


def _first(subject: object, names: tuple[str, ...]) -> Any:  # noqa: ANN401 a frame or an awaitable
    """Read the first of these attributes that is there: the three coroutine kinds spell them differently."""
    return next((getattr(subject, name) for name in names if hasattr(subject, name)), None)


def frame_of(coro: object) -> FrameType | None:
    """Find the frame of a coroutine of any kind; None when it has ended."""
    frame: FrameType | None = _first(coro, _FRAMES)
    return frame


def awaited_by(coro: object) -> object:
    """Find what a suspended coroutine awaits."""
    awaited: object = _first(coro, _AWAITS)
    return awaited


def _line(frame: FrameType) -> str:
    code = frame.f_code
    path = PurePath(code.co_filename)
    return f"{code.co_qualname} ({path.parent.name}/{path.name}:{frame.f_lineno})"


def awaiting(coro: object) -> list[str]:
    """List the frames a coroutine is suspended in, outermost first, and what the innermost one waits for."""
    chain: list[str] = []
    while coro is not None:
        frame = _first(coro, _FRAMES)
        if frame is None:
            break
        chain.append(_line(frame))
        coro = _first(coro, _AWAITS)
    if coro is not None:
        chain.append("a future" if "Future" in type(coro).__name__ else type(coro).__name__)
    return chain


def describe(task: asyncio.Task[Any]) -> str:
    """Tell a task's name and where it stands, in one line."""
    state = "cancelling, " if task.cancelling() else ""
    chain = awaiting(task.get_coro())
    # The coroutine sees only some future; the task knows when that is another task.
    waits_for = getattr(task, "_fut_waiter", None)
    if isinstance(waits_for, asyncio.Task):
        chain[-1] = f"task {waits_for.get_name()!r}"
    return f"{task.get_name()}: {state}{' -> '.join(chain)}"


def describe_all(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Tell of every task on a line of its own, in an order that does not change from run to run."""
    lines = sorted((len(task.get_name()), describe(task)) for task in tasks)
    return "\n".join(f"  {line}" for _, line in lines)
