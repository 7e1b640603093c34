"""Find what tasks share without weave seeing it: where there is such a thing, `dpor` would not be sound.

From each task the walk follows its coroutine frames to all that can be reached, and stops at what is tracked and at
what cannot change. A list, a dictionary, an object of an untracked class, or a variable that a closure rebinds, which
two tasks can reach, is shared out of sight.
"""

from __future__ import annotations

import asyncio
import contextvars
import dis
import enum
import logging
import types
from functools import lru_cache
from gc import get_referents
from typing import TYPE_CHECKING, Any

from penstock.weave.loop import Step, WeaveLoop

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    enum.Enum,
    type,
    types.ModuleType,
    types.CodeType,
    types.FrameType,
    asyncio.Future,
    asyncio.AbstractEventLoop,
    BaseException,
    logging.Logger,
    Step,
    contextvars.ContextVar,
)
_PASSED_THROUGH = (tuple, frozenset, types.MethodType, types.BuiltinFunctionType, types.MappingProxyType)


def shared_out_of_sight(loop: WeaveLoop, tracked: tuple[type, ...]) -> str:
    """Name something that two tasks share and weave does not track; nothing when there is none."""
    owners: dict[int, int] = {}
    kept: list[object] = []
    for number, task in enumerate(loop.pending_tasks()):
        for thing in _mutable_things([task.get_coro(), task.context], tracked):
            kept.append(thing)
            if owners.setdefault(id(thing), number) != number:
                return f"a {type(thing).__name__}"
    return ""


def _mutable_things(roots: list[Any], tracked: tuple[type, ...]) -> Iterable[object]:
    seen: dict[int, object] = {}
    left = list(roots)
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, (*_PLAIN, *tracked)):
            continue
        seen[id(thing)] = thing
        inner, mutable = _inside(thing)
        left += inner
        yield from mutable


def _inside(thing: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401 anything
    """Tell what is inside, and which of it can change: the thing itself, or variables that closures rebind."""
    if isinstance(thing, types.FunctionType):
        cells = thing.__closure__ or ()
        rebound = _rebound_names(thing.__code__)
        loose = [cell for name, cell in zip(thing.__code__.co_freevars, cells, strict=False) if name in rebound]
        return [*cells, *(thing.__defaults__ or ())], loose
    if isinstance(thing, types.CellType):
        return _contents(thing), []
    if isinstance(thing, (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)):
        held = get_referents(thing)
        own = [cell for cell in held if isinstance(cell, types.CellType)]
        return held, own if _rebinds_its_own(held) else []
    if isinstance(thing, contextvars.Context):
        return list(thing.values()), []
    declared: Any = getattr(type(thing), "__dataclass_params__", None)
    frozen = declared is not None and declared.frozen
    changes = not (frozen or isinstance(thing, _PASSED_THROUGH))
    return get_referents(thing), [thing] if changes else []


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


@lru_cache(maxsize=1024)
def _rebound_names(code: types.CodeType) -> frozenset[str]:
    """List the outer variables that this function, or one inside it, assigns."""
    stored = set(_stores(code))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            stored |= _rebound_names(inner)
    return frozenset(stored & set(code.co_freevars))


def _stores(code: types.CodeType) -> list[str]:
    return [step.argval for step in dis.get_instructions(code) if step.opname in {"STORE_DEREF", "DELETE_DEREF"}]


def _rebinds_its_own(held: list[Any]) -> bool:
    """Tell whether a function assigns a variable twice that functions inside it can see."""
    code = next((inner for inner in held if isinstance(inner, types.CodeType)), None)
    return code is not None and _assigns_twice(code)


@lru_cache(maxsize=1024)
def _assigns_twice(code: types.CodeType) -> bool:
    stored = _stores(code)
    return len(stored) > len(set(stored))
