"""A late answer. Whoever waits for it is told in the callback that brings it, without a task or a turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.kernel.errors import PenstockError


class Promise:
    """What a handler may return instead of a future, when a callback of its own will bring the answer.

    It is resolved once; what comes later, or after `cancel`, is dropped. Whoever makes promises derives from it and
    ends the work behind it in `cancel`.
    """

    __slots__ = ("_follower", "done", "result")

    # What a deadline that passes on it is called, in the answer and in `io_timeouts_total`.
    op = "request"

    def __init__(self) -> None:
        """Start without an answer and without anybody who waits for it."""
        self.done = False
        # Read by a handler whose promise was kept before it returned: it returns this instead.
        self.result: Any = None
        self._follower: Callable[[Any], None] | None = None

    def follow(self, follower: Callable[[Any], None]) -> None:
        """Say who is to be told. Only for an answer that is still to come: one that is known is returned as it is."""
        self._follower = follower

    def resolve(self, result: object) -> None:
        """Tell the follower; an error is an answer like any other."""
        if self.done:
            return
        self.done = True
        self.result = result
        follower, self._follower = self._follower, None
        if follower is not None:
            follower(result)

    def cancel(self) -> None:
        """Give up: nobody waits any more."""
        self.done = True
        self._follower = None


async def answer_of(promise: Promise) -> Any:  # noqa: ANN401 - typed by its caller
    """Wait for an answer and raise it if it is an error. Who stops waiting gives the promise up."""
    if not promise.done:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        promise.follow(partial(_tell, told))
        try:
            await told
        except asyncio.CancelledError:
            promise.cancel()
            raise
    if isinstance(promise.result, PenstockError):
        raise promise.result
    return promise.result


def _tell(waiter: asyncio.Future[None], _result: object) -> None:
    if not waiter.done():
        waiter.set_result(None)
