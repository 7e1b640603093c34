"""Named, bounded thread pools, only for calls that release the GIL: SQLite, files, BLAKE3, signatures, inflate.

A full pool is `Busy`. A call that outlives its deadline keeps its slot until it returns and is counted as
stuck; its caller has its `Timeout` at once. Threads are daemons: exit never waits for one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from penstock.kernel.deadline import timeout
from penstock.kernel.limiter import Limiter
from penstock.kernel.resource import Resource

P = ParamSpec("P")
R = TypeVar("R")

_Call = tuple["concurrent.futures.Future[Any]", Callable[[], Any]]


class _DaemonThreads(concurrent.futures.Executor):
    """An executor whose threads never hold the process up; bounded by the pool's limiter, not by itself."""

    def __init__(self, name: str, threads: int) -> None:
        # lint: allow PK003 the pool's limiter bounds what is put in
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        self._started = False

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> concurrent.futures.Future[Any]:
        # Not before somebody submits: a loop that runs the calls itself, as weave's does, never needs the threads.
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - inherited
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _run(*call)
            del call  # do not keep the last call's arguments alive while waiting for the next


def _run(future: concurrent.futures.Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except StopIteration as error:
        # An asyncio future refuses this one, and its caller would wait for ever.
        future.set_exception(RuntimeError(f"the call raised {error!r}"))
    except BaseException as error:  # noqa: BLE001  # lint: allow PK015 carried to the caller, who is on another thread
        future.set_exception(error)
    finally:
        # The error knows this frame, and the future the error: without this only the collector would free them.
        del future


class Pool(Resource):
    """A few threads and a bounded line in front of them."""

    def __init__(self, name: str, *, threads: int, capacity: int) -> None:
        """Bound the pool: `capacity` calls may wait beyond the ones that run. Threads start with the first call."""
        self.name = name
        self.threads = threads
        self.capacity = capacity
        self.stuck = 0
        self._places = Limiter(f"pool {name}", threads + capacity)
        self._executor: _DaemonThreads | None = None

    @property
    def depth(self) -> int:
        """Return how many calls run or wait."""
        return self._places.in_use

    @property
    def refused(self) -> int:
        """Return how many calls found no place."""
        return self._places.refused

    def _threads(self) -> _DaemonThreads:
        """Start the threads at the first call: a pool that was only declared costs nothing and needs no close."""
        if self._executor is None:
            self._executor = _DaemonThreads(self.name, self.threads)
            self.opened(f"pool:{self.name}")
        return self._executor

    async def run(self, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `call` on a thread within `seconds` (clipped by the current deadline)."""
        self._places.acquire_or_busy()
        # The thread that begins the call and the caller that gives up on it both sign here; setdefault is one
        # step, so exactly one of them is first, and the place is given back by the one who knows.
        signed: dict[str, str] = {}

        def claimed() -> R | None:
            return call(*args, **kwargs) if signed.setdefault("by", "thread") == "thread" else None

        future = asyncio.get_running_loop().run_in_executor(self._threads(), claimed)
        future.add_done_callback(_observe)
        try:
            async with timeout(op, seconds):
                return cast("R", await asyncio.shield(future))
        finally:
            if not future.done() and signed.setdefault("by", "caller") == "thread":
                self._wait_out(future)
            else:
                future.cancel()
                self._places.release()
            # An error that is raised here knows this frame: it must not know the future, which holds the error.
            del future

    def _wait_out(self, future: asyncio.Future[Any]) -> None:
        """Keep the slot of a call nobody waits for until it really returns."""
        self.stuck += 1
        future.add_done_callback(lambda _done: self._returned())

    def _returned(self) -> None:
        self.stuck -= 1
        self._places.release()

    async def _release(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


def _observe(future: asyncio.Future[Any]) -> None:
    """Mark an error as seen: when the caller has left, nobody else will look."""
    if not future.cancelled():
        future.exception()
