"""Performs the plan of a call in the task of its caller: try, pause, try again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import PenstockError, Timeout

T = TypeVar("T")


class TryAgain(msgspec.Struct, frozen=True):
    """What a try returns instead of an answer: the plan said to try again, after a pause."""

    delay_s: float


async def drive(attempt: Callable[[], Awaitable[T | TryAgain]], pause: Callable[[float], Awaitable[None]]) -> T:
    """Make tries until one brings an answer or raises. `attempt` asks the plan; what it raises is the outcome."""
    while True:
        outcome = await attempt()
        if not isinstance(outcome, TryAgain):
            return outcome
        await pause(outcome.delay_s)


class RetryPauses:
    """The calls that pause before their next try. Whoever they belong to can end all of them at once."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def pause(self, seconds: float) -> None:
        """Let the time pass, unless `cut` ends it."""
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(closed)
        try:
            async with timeout("backoff", seconds):
                await closed
        except Timeout:
            return
        finally:
            self._waiting.discard(closed)

    def cut(self, error: PenstockError) -> None:
        """End every pause with `error`."""
        for closed in self._waiting:
            if not closed.done():
                closed.set_exception(error)
