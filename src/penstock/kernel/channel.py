"""The bounded channel: many senders, one owner of the far end, and a named policy for when it is full.

Cancel-safe by construction: an item is popped inside the receiver's own step and never travels through a
future, so a cancelled `recv` has taken nothing; and a waiter that was woken but cancelled passes its wake
on, so nobody sleeps beside an item. Closing is apart from shutdown: senders are refused at once, receivers
finish what is there and then get `Closed`.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy, Closed, NotReady, Timeout

T = TypeVar("T")


class Full(enum.Enum):
    """What a channel does with one item too many."""

    REFUSE = "refuse"  # try_send raises Busy; what is queued stays
    DROP_OLDEST = "drop_oldest"  # the oldest item makes room and is counted
    WAIT = "wait"  # send waits up to the channel's limit, then Timeout; counted


class Channel(Generic[T]):
    """A bounded queue with a name; made through the inventory, so that it is counted and documented."""

    __slots__ = (
        "_closed",
        "_items",
        "_receivers",
        "_senders",
        "_shut",
        "capacity",
        "dropped",
        "full",
        "name",
        "wait_s",
    )

    def __init__(self, name: str, *, capacity: int, full: Full, wait_s: float | None = None) -> None:
        """Bound the channel; there is no default capacity, and only WAIT has (and needs) a limit."""
        if capacity < 1:
            message = f"channel {name}: capacity must be at least 1, not {capacity}"
            raise ValueError(message)
        if (full is Full.WAIT) != (wait_s is not None):
            message = f"channel {name}: a wait limit belongs to Full.WAIT, and only to it"
            raise ValueError(message)
        self.name = name
        self.capacity = capacity
        self.full = full
        self.wait_s = wait_s
        self.dropped = 0  # items refused, dropped or given up on: counted here, once
        self._closed = False
        self._shut = False  # closed, or suspended while its consumer is quarantined: one test on the hot path
        # Bounded by `capacity`: every append is behind the check in try_send.
        self._items: deque[T] = deque()
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._senders: deque[asyncio.Future[None]] = deque()

    @property
    def depth(self) -> int:
        """Return how many items are waiting."""
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Tell whether senders are refused."""
        return self._closed

    def try_send(self, item: T) -> None:
        """Put an item in without waiting, or say why not: `Busy` when full, `Closed` after close."""
        items = self._items
        if self._shut or len(items) >= self.capacity:
            self._make_room()
        items.append(item)
        if self._receivers:
            _wake_one(self._receivers)

    def _make_room(self) -> None:
        """Apply the full policy; return only when there is room for one."""
        if self._closed:
            raise Closed(f"channel {self.name} is closed", queue=self.name)
        self.dropped += 1
        if self._shut:
            raise NotReady(f"the consumer of {self.name} is not running", queue=self.name)
        if self.full is not Full.DROP_OLDEST:
            raise Busy(f"channel {self.name} is full", queue=self.name)
        self._items.popleft()

    async def send(self, item: T) -> None:
        """Put an item in; a WAIT channel waits for room up to its limit, the others behave as try_send."""
        if self.full is Full.WAIT and not self._shut and len(self._items) >= self.capacity:
            await self._wait_for_room()
        self.try_send(item)

    async def _wait_for_room(self) -> None:
        assert self.wait_s is not None
        try:
            async with timeout(f"send:{self.name}", self.wait_s):
                await self._park(self._senders, self._is_full)
        except Timeout:
            self.dropped += 1
            raise

    def _is_full(self) -> bool:
        # Shut ends the wait as room does: try_send then says why.
        return len(self._items) >= self.capacity and not self._shut

    async def recv(self) -> T:
        """Take the oldest item, waiting for one; raise `Closed` when closed and empty."""
        items = self._items
        if not items:
            await self._park(self._receivers, self._is_empty)
            if not items:
                raise Closed(f"channel {self.name} is closed and empty", queue=self.name)
        item = items.popleft()
        if self._senders:
            _wake_one(self._senders)
        return item

    async def recv_many(self, limit: int) -> list[T]:
        """Take between one and `limit` items in one step, waiting for the first."""
        taken = [await self.recv()]
        items = self._items
        while items and len(taken) < limit:
            taken.append(items.popleft())
            if self._senders:
                _wake_one(self._senders)
        return taken

    def suspend(self) -> None:
        """Refuse senders with `NotReady` while the consumer is quarantined; what is queued waits for it."""
        self._shut = True
        _wake_all(self._senders)

    def resume(self) -> None:
        """Take senders again, unless the channel was closed meanwhile."""
        self._shut = self._closed

    def _is_empty(self) -> bool:
        return not self._items and not self._closed

    def close(self) -> None:
        """Refuse senders from now on; receivers finish what is there. Closing twice changes nothing."""
        self._closed = self._shut = True
        _wake_all(self._receivers)
        _wake_all(self._senders)

    def abandon(self) -> list[T]:
        """Close, and take out at once whatever nobody will receive any more; for an abort."""
        self.close()
        left = list(self._items)
        self._items.clear()
        return left

    async def _park(self, waiters: deque[asyncio.Future[None]], blocked: Callable[[], bool]) -> None:
        """Wait until not blocked. A waiter that was overtaken after its wake-up waits again at the front."""
        loop = asyncio.get_running_loop()
        enqueue = waiters.append
        while blocked():
            waiter = loop.create_future()
            enqueue(waiter)
            try:
                await waiter
            except BaseException:
                _step_back(waiters, waiter)
                raise
            enqueue = waiters.appendleft


def _wake_one(waiters: deque[asyncio.Future[None]]) -> None:
    """Wake the longest waiting one that still waits."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return


def _wake_all(waiters: deque[asyncio.Future[None]]) -> None:
    """Wake everyone: what they wait for will not come."""
    while waiters:
        _wake_one(waiters)


def _step_back(waiters: deque[asyncio.Future[None]], waiter: asyncio.Future[None]) -> None:
    """Leave the line of waiters. A wake-up that this waiter can no longer use goes to the next one.

    The next one looks for itself whether there is anything to do: a wake too many costs one step, a wake
    too few strands an item.
    """
    if waiter.done() and not waiter.cancelled():
        _wake_one(waiters)
    elif waiter in waiters:
        # A sender may already have passed over a waiter whose cancel was on its way.
        waiters.remove(waiter)
