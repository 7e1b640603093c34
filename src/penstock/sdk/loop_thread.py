"""A loop on its own thread, for callers without one: calls are bounded in number and time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

from penstock.kernel.errors import Canceled, Timeout
from penstock.kernel.lock import HIERARCHY, Lock
from penstock.kernel.metrics import Metrics
from penstock.kernel.scope import Scope
from penstock.sdk.errors import ClientClosed

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
# What a call came to: its result, or the error it raised.
Outcome: TypeAlias = tuple[T | None, Exception | None]

_START_S: Final = 10.0
_CLOSE_S: Final = 10.0


class LoopThread:
    """Runs coroutines for other threads. The thread is a daemon: a program that forgot to close can still end."""

    def __init__(self, name: str, metrics: Metrics, *, calls_max: int = 256) -> None:
        """Start the loop and wait until it runs; more than `calls_max` calls at once are `Busy`."""
        self._metrics = metrics
        self._calls_max = calls_max
        self._pid = os.getpid()
        self._running: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._scope: Scope
        self._stop: asyncio.Event
        # What lives on the loop and is closed with it, after the calls.
        self.at_end: Callable[[], Awaitable[None]] = _nothing
        self._closed = False
        # Held for one step: a call is handed to the loop before the word to stop, or not at all.
        self._door = Lock("loop_thread", HIERARCHY["state_meta"])
        # The one thread of a client whose user has no loop.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)  # noqa: TID251
        self._thread.start()
        self._loop = self._running.result(_START_S)

    @property
    def is_closed(self) -> bool:
        """Tell whether calls are refused."""
        return self._closed

    def call(self, work: Work[T], limit_s: float) -> T:
        """Run a coroutine to its end and return what it returns; `Timeout` when it outlasts its own deadline."""
        return self.result(self.submit(work), limit_s)

    def submit(self, work: Work[T]) -> concurrent.futures.Future[T]:
        """Begin a call; cancelling the future cancels the coroutine."""
        if os.getpid() != self._pid:
            raise Canceled("The client belongs to the process this one was forked from: make another here.")
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._door:
            if self._closed:
                raise ClientClosed
            self._loop.call_soon_threadsafe(self._begin, work, future)
        return future

    def soon(self, act: Callable[[], object]) -> None:
        """Have the loop call something in its next turn, from any thread and any signal; nothing when it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    @staticmethod
    def result(future: concurrent.futures.Future[T], limit_s: float) -> T:
        """Wait for a call; a caller that gives up, by Ctrl-C for example, cancels it."""
        try:
            return future.result(limit_s)
        except concurrent.futures.CancelledError:
            raise Canceled("The call was cancelled.") from None
        except TimeoutError:
            raise Timeout("sync_call", budget_s=limit_s) from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what runs, end the loop and wait for the thread. A second caller waits for the same end."""
        if os.getpid() != self._pid:
            return  # the thread is the parent's, and so are its connections
        with self._door:
            first, self._closed = not self._closed, True
            if first and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_S)

    # --- on the thread

    def _main(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except OSError as error:
            # No descriptor left for a loop, say: whoever waits for the loop is told why it does not come.
            if self._running.done():
                raise
            self._running.set_exception(error)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._scope = Scope("sync_call", self._calls_max, self._metrics)
        self._running.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        await self._scope.close()
        await self.at_end()

    def _begin(self, work: Work[T], future: concurrent.futures.Future[T]) -> None:
        if future.cancelled():
            return  # whoever asked gave up before the loop had a turn
        try:
            task = self._scope.start(_outcome(work))
        except Exception as refused:  # noqa: BLE001 - carried to the caller, who is on another thread
            with suppress(concurrent.futures.InvalidStateError):  # he may give up at this very moment
                future.set_exception(refused)
            return
        task.add_done_callback(lambda ended: self._hand_over(ended, future))
        future.add_done_callback(lambda _ended: self._give_up(task, future))

    def _give_up(self, task: asyncio.Task[Outcome[T]], future: concurrent.futures.Future[T]) -> None:
        if future.cancelled():
            with suppress(RuntimeError):  # the loop may end at this very moment, and the task with it
                self._loop.call_soon_threadsafe(task.cancel)

    def _hand_over(self, task: asyncio.Task[Outcome[T]], future: concurrent.futures.Future[T]) -> None:
        """Hand the outcome to the calling thread, unless it gave up and cancelled the future."""
        if not future.set_running_or_notify_cancel():
            return
        if task.cancelled():
            future.set_exception(ClientClosed() if self._closed else Canceled("The call was cancelled."))
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            _hand_out(task.result(), future)


async def _outcome(work: Work[T]) -> Outcome[T]:
    """Carry an error to the calling thread as a value: it is raised there, and no task has failed here."""
    try:
        return await work(), None
    except Exception as error:  # noqa: BLE001 - raised to the caller, who is on another thread
        return None, error


def _hand_out(outcome: Outcome[T], future: concurrent.futures.Future[T]) -> None:
    result, error = outcome
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(cast("T", result))


async def _nothing() -> None:
    """Close nothing."""
