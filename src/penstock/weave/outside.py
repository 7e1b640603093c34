"""Keep a run apart from the world: no sockets, no threads, no output, and a word about clocks and dice.

A schedule can be replayed only if the program's steps depend on nothing but the order of its steps. Sockets, threads
and processes are refused with a sentence that says where. Reading the wall clock or an unseeded random source is
noted. What a run prints or logs is discarded, because thousands of runs would print it.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import wraps
from typing import TYPE_CHECKING, Any

from penstock.weave.loop import Refused, WeaveLoop
from penstock.weave.trace import where_called

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SOCKET = "opens a socket; give it an in-memory transport (penstock.testing.transport)"
_PROCESS = "starts a process"
_THREAD = "starts a thread; use asyncio.to_thread, which weave runs as an outside event"
_SLEEP = "sleeps in real time, which stops the loop; use asyncio.sleep"
_REFUSED: tuple[tuple[Any, str, str], ...] = (
    (socket.socket, "__init__", _SOCKET),
    (subprocess.Popen, "__init__", _PROCESS),
    (os, "fork", "forks"),
    (os, "posix_spawn", _PROCESS),
    (threading.Thread, "start", _THREAD),
    (time, "sleep", _SLEEP),
)
"""Not by an audit hook: it can never be removed, and would be called for every look at a function or a frame."""
_CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
_DATES = {"now", "utcnow", "today"}
_DICE = {"random", "getrandbits", "urandom", "uuid4", "uuid1", "randbytes", "token_bytes"}


class OutOfTime(BaseException):
    """The search has used up its seconds; raised by an alarm, also in the middle of a step."""


def _refuse(what: str) -> None:
    """End the run that does this, if a run does it."""
    loop = asyncio._get_running_loop()
    if isinstance(loop, WeaveLoop) and not loop.over:
        loop.refusal = f"the program {what} ({where_called()})"
        raise Refused(loop.refusal)


@contextmanager
def _guarding(owner: Any, name: str, what: str) -> Iterator[None]:  # noqa: ANN401 a module or a class
    """Refuse a call that leaves the program's world; outside of a run it is made as ever."""
    plain = getattr(owner, name)

    @wraps(plain)
    def refuse(*args: object, **options: object) -> object:
        _refuse(what)
        return plain(*args, **options)

    setattr(owner, name, refuse)
    try:
        yield
    finally:
        setattr(owner, name, plain)


class _Nowhere(io.TextIOBase):
    """A stream that forgets."""

    def write(self, text: str) -> int:
        """Drop the text."""
        return len(text)


@contextmanager
def apart() -> Iterator[None]:
    """Discard output and logs of the runs inside, and all that they leave behind."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(_Nowhere()), redirect_stderr(_Nowhere()), leaving_nothing():
            yield
    finally:
        logging.disable(level)


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """Collect garbage only between runs and at the end: no destructor runs in a later run, and none says anything."""
    collecting = gc.isenabled()
    # What exists already is not looked at: a collection costs only as much as the runs have left.
    gc.freeze()
    gc.disable()
    with warnings.catch_warnings(), ExitStack() as guards:
        for refused in _REFUSED:
            guards.enter_context(_guarding(*refused))
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            gc.collect()
            gc.unfreeze()
            if collecting:
                gc.enable()


@contextmanager
def alarm(seconds: float | None, expired: list[bool]) -> Iterator[None]:
    """Raise `OutOfTime` when the seconds are over, also inside a step that never ends; main thread only."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        expired[:] = [True]
        loop = asyncio._get_running_loop()
        if isinstance(loop, WeaveLoop):
            loop.expired = True
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    # Again and again: a program may swallow the first.
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class RunListener:
    """Listens to one run: which modules it uses, and whether it reads a clock or throws dice."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.notes: dict[str, None] = {}
        self._seeded: list[object] = []
        """Random sources that the run itself gave a seed: they throw alike in every run."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Profile what happens inside."""
        before = sys.getprofile()
        sys.setprofile(self._on_call)
        try:
            yield
        finally:
            # A profiler written in C puts itself back only by its own hands.
            sys.setprofile(before if callable(before) else None)

    def _on_call(self, frame: FrameType, what: str, function: Any) -> None:  # noqa: ANN401 as the interpreter calls it
        caller = frame.f_globals.get("__name__", "")
        if what == "call":
            self.modules.add(caller)
        elif what == "c_call" and not caller.startswith(("penstock.weave", "penstock.testing", "asyncio.", "logging")):
            self._judge(frame, function)

    def _judge(self, frame: FrameType, function: Any) -> None:  # noqa: ANN401 any builtin
        name = getattr(function, "__name__", "")
        module = getattr(function, "__module__", None)
        owner = getattr(function, "__self__", None)
        place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        if (name in _CLOCKS and module == "time") or (
            name in _DATES and getattr(owner, "__module__", "") == "datetime"
        ):
            self.notes[f"the program reads the wall clock ({name} in {place}); use loop.time()"] = None
        elif name == "seed" and isinstance(owner, random.Random) and frame.f_locals.get("a") is not None:
            self._seeded.append(owner)
        elif (
            name in _DICE
            and not any(owner is seeded for seeded in self._seeded)
            and (module in {"posix", "_uuid"} or type(owner).__name__ in {"Random", "SystemRandom"})
        ):
            self.notes[f"the program draws random numbers ({name} in {place}); seed them in each run"] = None


def real_now() -> float:
    """Read the clock by which the search itself is limited."""
    return time.perf_counter()
