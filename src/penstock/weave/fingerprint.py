"""A canonical fingerprint of everything a program's future depends on.

Two schedules that lead to the same fingerprint have the same continuations, so the second one need not be followed.
The fingerprint covers: the tasks with their coroutine frames (position, locals, value stack), what they await, the
ready steps, the timers relative to now, the outside events still to come, and all plain Python objects that can be
reached from there. Objects are numbered in the order in which the walk meets them, so addresses do not matter.

The walk is done by the C pickler, which follows lists, dictionaries, tuples and strings by itself and numbers what it
meets; a table of encoders tells it what the state of the other types is. It is never unpickled. A type without an
encoder is C code whose state cannot be seen: the walk raises `Opaque`, and the search goes on without pruning.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import enum
import functools
import io
import logging
import operator
import pickle
import re
import sys
import types
import weakref
from _thread import LockType, RLock
from gc import get_referents
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from penstock.weave.frames import bound_names
from penstock.weave.loop import TASK, Step, WeaveFuture, WeaveLoop, WeaveTask

if TYPE_CHECKING:
    from collections.abc import Callable

Reduced = tuple[Any, ...] | str

_DIGEST_BYTES = 16
_BUILTIN = types.BuiltinMethodType


class Opaque(Exception):
    """The program holds state in an object that only C code can see into."""


class _Mark:
    """Stands for whatever is encoded: pickle wants something to call, and writes its name once."""

    def __call__(self) -> None:
        """Do nothing; what is written is never read back."""


_MARK = _Mark()


Tag = tuple[int]


@functools.cache
def _tag(text: str) -> Tag:
    """Keep one tuple for each tag: the pickler writes an object it has met before in two bytes.

    It holds a digest, because a number is written much faster than a text. The digest is the same in every process.
    """
    return (int.from_bytes(blake2b(text.encode(), digest_size=8).digest()),)


def _plain(tag: str, state: object) -> Reduced:
    return _MARK, _tag(tag), state


_FUTURE, _FUTURE_DONE, _TASK, _CONTEXT = _tag("future"), _tag("future done"), _tag("task"), _tag("context")


_FINISHED: Reduced = _plain("finished", None)
_NOTHING_INSIDE = (None, None, None)
_CODE_AT = 5
"""Where a suspended frame's code mostly stands among what its coroutine refers to."""


def _heard_by(future: Any) -> object:  # noqa: ANN401 any kind of future
    """List who is told when a future is done: a task that awaits it, or a callback."""
    callbacks = future._callbacks
    if not callbacks:
        return None
    return [
        callback.__self__ if type(callback) is _BUILTIN and callback.__name__ == "task_wakeup" else (callback, context)
        for callback, context in callbacks
    ]


class Fingerprints:
    """Makes fingerprints of the world of one loop after the other."""

    def __init__(self, ignores: tuple[type, ...] = ()) -> None:
        """Leave out the objects of these classes."""
        self._ignores = ignores
        self._now = 0.0
        self._names: dict[object, Tag] = {}
        self._codes: dict[int, Tag] = {}
        self._kept: list[types.CodeType] = []
        self._bound: dict[tuple[int, int, int], Tag] = {}
        """The tags of suspended frames whose bound locals follow from the position and the number of values."""
        self._buffer = io.BytesIO()
        self._encoders = _Encoders(self._encoder_for)
        self._encoders.update(_table(self))
        self._pickler = _Walk(self._buffer, self._encoders)

    def of(self, loop: WeaveLoop, beside: object) -> bytes:
        """Fingerprint the world of this loop, and what else belongs to the state."""
        self._now = loop._now
        buffer = self._buffer
        buffer.seek(0)
        buffer.truncate()
        self._pickler.clear_memo()
        try:
            self._pickler.dump(self._roots(loop, beside))
        except Opaque:
            raise
        except RecursionError:
            raise Opaque("objects nested too deeply") from None
        except Exception as error:
            raise Opaque(f"an object that raises {type(error).__name__} when it is looked at") from error
        return blake2b(buffer.getbuffer(), digest_size=_DIGEST_BYTES).digest()

    def of_value(self, value: object) -> bytes | None:
        """Fingerprint one value, or nothing when it cannot be seen into."""
        self._buffer.seek(0)
        self._buffer.truncate()
        self._pickler.clear_memo()
        try:
            self._pickler.dump(value)
        except Exception:  # noqa: BLE001 whatever a strange object raises when it is looked at
            return None
        return blake2b(self._buffer.getbuffer(), digest_size=_DIGEST_BYTES).digest()

    def _roots(self, loop: WeaveLoop, beside: object) -> list[object]:
        ready: list[Any] = [step for step in loop._ready if not step.cancelled()]
        if loop.mode != "fifo":
            # The order of the ready task steps decides nothing: each of them may come next.
            steps = [step for step in ready if step.kind == TASK]
            steps.sort(key=_path_of)
            ready = [*steps, *(step for step in ready if step.kind != TASK)]
        return [
            [(step.kind, step.task or step._callback, step._args, step._callback) for step in ready],
            loop.released,
            [timer for _, _, timer in loop._timers if not timer.cancelled()],
            loop.events,
            loop.pending_tasks(),
            loop.main,
            loop._now if loop.clock_read else None,
            beside,
        ]

    # -- encoders: each tells the state of one type ----------------------------------------------------------------

    def name_of(self, thing: Any) -> Tag:  # noqa: ANN401 a class or a function
        """Name a class or a code object; one made anew in each run has the same name in all of them."""
        try:
            return self._names[thing]
        except KeyError:
            tag = self._names[thing] = _tag(_full_name(thing))
            return tag

    def coroutine(self, coro: types.CoroutineType[Any, Any, Any]) -> Reduced:
        """Encode a suspended coroutine."""
        frame = coro.cr_frame
        return _FINISHED if frame is None else self._suspended(coro, frame, coro.cr_code)

    def generator(self, generator: types.GeneratorType[Any, Any, Any]) -> Reduced:
        """Encode a suspended generator."""
        frame = generator.gi_frame
        return _FINISHED if frame is None else self._suspended(generator, frame, generator.gi_code)

    def async_generator(self, generator: types.AsyncGeneratorType[Any, Any]) -> Reduced:
        """Encode a suspended asynchronous generator."""
        frame = generator.ag_frame
        return _FINISHED if frame is None else self._suspended(generator, frame, generator.ag_code)

    def _suspended(self, coro: object, frame: types.FrameType, code: types.CodeType) -> Reduced:
        """Encode a frame: position, which locals are bound, and their values with the value stack."""
        referents = get_referents(coro)
        # What stands before the frame's code is bookkeeping: names, the frame object, the function.
        if referents[_CODE_AT] is code:
            del referents[: _CODE_AT + 1]
        else:
            del referents[: referents.index(code, 1) + 1]
        key = (id(code), frame.f_lasti, len(referents))
        tag = self._bound.get(key)
        if tag is None:
            names, lasting = bound_names(frame)
            tag = _tag(f"{_full_name(code)} at {frame.f_lasti} with {names}")
            if lasting:
                self._keep(code)
                self._bound[key] = tag
        return _MARK, tag, referents

    def function(self, function: types.FunctionType) -> Reduced:
        """Encode a function by its code, what it closes over and its defaults."""
        code = function.__code__
        tag = self._codes.get(id(code)) or self._keep(code)
        inner = (function.__closure__, function.__defaults__, function.__kwdefaults__)
        return (_MARK, tag) if inner == _NOTHING_INSIDE else (_MARK, tag, inner)

    def _keep(self, code: types.CodeType) -> Tag:
        """Name a code object by its address from now on: to hash one takes long. It is kept, so the address stays."""
        self._kept.append(code)
        tag = self._codes[id(code)] = _tag(_full_name(code))
        return tag

    def future(self, future: Any) -> Reduced:  # noqa: ANN401 any kind of future
        """Encode a future: its state, its result and who waits for it."""
        if future._state == "PENDING":
            return _MARK, _FUTURE, _heard_by(future)
        return _MARK, _FUTURE_DONE, (future._state, self._ending(future), _heard_by(future), future._cancel_message)

    def task(self, task: Any) -> Reduced:  # noqa: ANN401 what is read here is not declared
        """Encode a task: where its coroutine stands, what it waits for and what is asked of it."""
        name = task.get_name()
        named = None if name.startswith("task-") else name
        if task.done():
            ending = self._ending(task)
            return _plain("task done", (named, task._state, ending, _heard_by(task)))
        return (
            _MARK,
            _TASK,
            (
                named,
                task._must_cancel,
                task.cancelling(),
                task._cancel_message,
                task._fut_waiter,
                _heard_by(task),
                task.context,
                task.get_coro(),
            ),
        )

    @staticmethod
    def _ending(future: Any) -> object:  # noqa: ANN401 any kind of future
        if future._state == "CANCELLED":
            return None
        return future._log_traceback, future._exception, future._result

    def step(self, step: Step) -> Reduced:
        """Encode a callback; a timer by what is left of its time."""
        left = round(step._when - self._now, 9) if step._scheduled else None
        return _plain("step", (left, step._cancelled, step._callback, step._args))

    def instance(self, thing: object) -> Reduced:
        """Encode an object of a Python class by its attributes."""
        state = getattr(thing, "__dict__", None)
        return _MARK, self.name_of(type(thing)), state

    def _encoder_for(self, kind: type) -> Callable[[Any], Reduced]:
        if issubclass(kind, self._ignores):
            return lambda _: (_MARK, self.name_of(kind))
        for base in (BaseException, enum.Enum, type, logging.Logger, logging.Handler, io.IOBase, WeaveLoop):
            if issubclass(kind, base):
                return _special(self, base)
        if kind.__name__ == "TaskStepMethWrapper":
            return _referents("task step")
        if issubclass(kind, asyncio.Task):
            return self.task
        if issubclass(kind, asyncio.Future):
            return self.future
        if kind in _FREE_OF_STATE or kind.__module__ in {"re", "_weakrefset"}:
            return lambda _: (_MARK, self.name_of(kind))
        builtin = next((base for base in kind.__mro__ if not _is_python_class(base) and base is not object), object)
        content = None if builtin is object else _content_of(builtin)
        if _is_python_class(kind) and (builtin is object or content is not None):
            return _instance_encoder(self, kind, content)
        return functools.partial(_by_reduce, self)


def _full_name(thing: Any) -> str:  # noqa: ANN401 a class, a function or a code object
    module = getattr(thing, "__module__", None) or getattr(thing, "co_filename", "")
    name = getattr(thing, "co_qualname", None) or getattr(thing, "__qualname__", repr(thing))
    line = getattr(thing, "co_firstlineno", "")
    return f"{type(thing).__name__} {module}:{name}:{line}"


class _Encoders(dict[type, "Callable[[Any], Reduced]"]):
    """The encoders by type; one that is missing is found out."""

    def __init__(self, find: Callable[[type], Callable[[Any], Reduced]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, kind: type) -> Callable[[Any], Reduced]:
        """Find the encoder of a type met for the first time."""
        encoder = self[kind] = self._find(kind)
        return encoder


class _Walk(pickle.Pickler):
    """The C pickler with our table of encoders."""

    def __init__(self, buffer: io.BytesIO, encoders: _Encoders) -> None:
        super().__init__(buffer, 5)

        def override(thing: Any) -> Any:  # noqa: ANN401 as pickle calls it
            return encoders[type(thing)](thing)

        # Not a method: this is called a hundred times for each state.
        self.reducer_override = override  # type: ignore[method-assign]


def _path_of(step: Any) -> tuple[int, ...]:  # noqa: ANN401 a step of a task
    path: tuple[int, ...] = step.task.path
    return path


def _is_python_class(kind: type) -> bool:
    return bool(kind.__flags__ & (1 << 9)) and "__module__" in vars(kind) and not _is_c_heap_type(kind)


def _is_c_heap_type(kind: type) -> bool:
    """Tell a heap type made by C code: it has no dictionary, slots or weak references as a class statement makes."""
    names = vars(kind)
    return not ("__dict__" in names or "__weakref__" in names or "__slots__" in names or _has_python_base(kind))


def _has_python_base(kind: type) -> bool:
    return any(isinstance(value, (types.FunctionType, property)) for value in vars(kind).values()) or any(
        base is not object and bool(base.__flags__ & (1 << 9)) and _is_python_class(base) for base in kind.__bases__
    )


_FREE_OF_STATE = {
    types.ModuleType,
    types.CodeType,
    types.FrameType,
    types.TracebackType,
    type(NotImplemented),
    type(Ellipsis),
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    property,
    re.Pattern,
    object,
    io.TextIOWrapper,
    type(sys.stdout),
    weakref.WeakKeyDictionary,
}


def _content_of(builtin: type) -> Callable[[Any], object] | None:
    """Tell how to read what a subclass of a built-in container or value holds."""
    readers: dict[type, Callable[[Any], object]] = {
        dict: dict.copy,
        collections.OrderedDict: lambda thing: list(thing.items()),
        collections.defaultdict: lambda thing: (thing.default_factory, list(thing.items())),
        list: list.copy,
        tuple: lambda thing: list(tuple.__iter__(thing)),
        set: list,
        frozenset: list,
        collections.deque: lambda thing: (thing.maxlen, list(thing)),
        int: int.__int__,
        float: float.__float__,
        str: str.__str__,
        bytes: lambda thing: bytes.__getitem__(thing, slice(None)),
        bytearray: bytes,
    }
    return readers.get(builtin)


def _slots_of(kind: type) -> tuple[str, ...]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in {"__dict__", "__weakref__"}:
                continue
            names.append(f"_{base.__name__.lstrip('_')}{name}" if name[:2] == "__" and name[-2:] != "__" else name)
    return tuple(names)


_ABSENT = "absent"


def _instance_encoder(
    prints: Fingerprints, kind: type, content: Callable[[Any], object] | None
) -> Callable[[Any], Reduced]:
    """Make the encoder of a Python class: attributes, slots, and what a built-in base holds."""
    slots = _slots_of(kind)
    tag = prints.name_of(kind)
    has_dict = kind.__dictoffset__ != 0
    if not slots and content is None:
        return lambda thing: (_MARK, tag, getattr(thing, "__dict__", None))

    read = operator.attrgetter(*slots, *slots[:1]) if slots else tuple

    def encode(thing: Any) -> Reduced:  # noqa: ANN401 an instance of kind
        try:
            values = read(thing) if slots else ()
        except AttributeError:
            values = tuple([getattr(thing, name, _ABSENT) for name in slots])
        if not has_dict and content is None:
            return _MARK, tag, values
        held = None if content is None else content(thing)
        return _MARK, tag, (getattr(thing, "__dict__", None), values, held)

    return encode


def _special(prints: Fingerprints, base: type) -> Callable[[Any], Reduced]:
    if base is BaseException:
        # Where it was raised and what was handled at that time are not looked at by a program.
        return lambda error: (_MARK, prints.name_of(type(error)), (error.args, error.__dict__ or None, error.__cause__))
    if base is enum.Enum:
        return lambda member: (_MARK, _tag(f"enum {type(member).__module__}.{type(member).__qualname__}.{member.name}"))
    if base is type:
        return lambda kind: (_MARK, prints.name_of(kind))
    # Loggers, files and the loop are outside of the program's world; they are the same in every run.
    return lambda thing: (_MARK, prints.name_of(type(thing)))


def _by_reduce(prints: Fingerprints, thing: Any) -> Reduced:  # noqa: ANN401 anything
    """Ask a C object for its own description; what has none is opaque."""
    try:
        reduced = thing.__reduce_ex__(4)
    except TypeError:
        raise Opaque(f"{type(thing).__module__}.{type(thing).__qualname__}") from None
    if isinstance(reduced, str):
        return _MARK, _tag(f"global {reduced}")
    made, args, *rest = reduced
    items = [list(part) if hasattr(part, "__next__") else part for part in rest]
    return _MARK, prints.name_of(type(thing)), (getattr(made, "__qualname__", ""), args, items)


def _method(method: types.MethodType) -> Reduced:
    return _plain("method", (method.__func__, method.__self__))


def _builtin(function: types.BuiltinFunctionType) -> Reduced:
    owner = function.__self__
    tag = _tag(f"builtin {function.__qualname__}")
    return (_MARK, tag) if owner is None or isinstance(owner, types.ModuleType) else (_MARK, tag, (owner,))


def _cell(cell: types.CellType) -> Reduced:
    try:
        return _plain("cell", (cell.cell_contents,))
    except ValueError:
        return _plain("empty cell", None)


_name_first = operator.itemgetter(0)


def _context(context: contextvars.Context) -> Reduced:
    if not context:
        return _MARK, _CONTEXT
    return _MARK, _CONTEXT, sorted([(var.name, value) for var, value in context.items()], key=_name_first)


def _memory(view: memoryview) -> Reduced:
    """Encode a view of a whole buffer; where a part of one begins cannot be seen."""
    if view.nbytes != memoryview(view.obj).nbytes:
        raise Opaque("a memoryview of a part")
    return _plain("memory", (view.obj, view.format, view.readonly))


def _weakly(ref: Any) -> Reduced:  # noqa: ANN401 a weak reference
    return _plain("weakref", (ref(),))


def _referents(tag: str) -> Callable[[Any], Reduced]:
    return lambda thing: _plain(tag, get_referents(thing))


def _table(prints: Fingerprints) -> dict[type, Callable[[Any], Reduced]]:
    """List the encoders of the types that every program has."""

    async def agen() -> Any:  # noqa: ANN401, RUF029 only its types are wanted
        yield

    async def coro() -> None:  # noqa: RUF029 only its types are wanted
        return None

    generator, suspended = agen(), coro()
    asend, athrow, wrapper = generator.asend(None), generator.athrow(ValueError), suspended.__await__()
    awaitables = [type(asend), type(athrow), type(wrapper)]
    suspended.close()
    asend.close()
    athrow.close()
    future_iter = type(asyncio.Future.__iter__) and _future_iter()
    table: dict[type, Callable[[Any], Reduced]] = {
        types.CoroutineType: prints.coroutine,
        types.GeneratorType: prints.generator,
        types.AsyncGeneratorType: prints.async_generator,
        types.FunctionType: prints.function,
        types.MethodType: _method,
        types.BuiltinFunctionType: _builtin,
        types.CellType: _cell,
        contextvars.Context: _context,
        contextvars.ContextVar: lambda var: (_MARK, _tag(f"var {var.name}")),
        contextvars.Token: lambda token: _plain("token", (token.var.name, _old_value(token))),
        io.StringIO: lambda text: _plain("text", (text.getvalue(), text.tell())),
        io.BytesIO: lambda data: _plain("bytes", (data.getvalue(), data.tell())),
        types.MappingProxyType: lambda view: _plain("view", dict(view)),
        memoryview: _memory,
        weakref.ReferenceType: _weakly,
        weakref.WeakMethod: _weakly,
        collections.deque: lambda thing: (_MARK, _tag("deque"), (thing.maxlen, list(thing))),
        LockType: lambda lock: _plain("lock", (lock.locked(),)),
        RLock: lambda lock: _plain("rlock", (lock._is_owned(),)),
        asyncio.Future: prints.future,
        WeaveFuture: prints.future,
        WeaveTask: prints.task,
        Step: prints.step,
        _Mark: lambda _: "_MARK",
        future_iter: _referents("future iterator"),
    }
    table |= {kind: _referents(kind.__name__) for kind in awaitables}
    return table


def _old_value(token: contextvars.Token[Any]) -> object:
    value = token.old_value
    return None if value is contextvars.Token.MISSING else (value,)


def _future_iter() -> type:
    """Find the type of what `await future` keeps on the value stack."""
    loop = asyncio.new_event_loop()
    try:
        return type(iter(loop.create_future()))
    finally:
        loop.close()
