"""A mailbox for consumers on virtual time: the in-memory contract, with an operator's hand on its switches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import DownstreamUnavailable, PenstockError
from penstock.kernel.metrics import Metrics
from penstock.sdk.lease_keeper import LeaseKeeper
from penstock.sdk.mailbox import MailboxClient
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_mailbox_state import MemoryMailboxOptions

TOPIC = "orders"


class Switched(MemoryMailbox):
    """The mailbox in RAM, which can be out of reach and which counts who asks."""

    down: PenstockError | None = None
    polls = 0
    renewals = 0
    nacks: list[m.Nack]
    # How long an answer takes.
    lag_s = 0.0

    async def _reached(self) -> None:
        if self.lag_s:
            await asyncio.sleep(self.lag_s)
        if self.down is not None:
            raise self.down

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        self.polls += 1
        await self._reached()
        return await super().recv(request, call)

    async def ack(self, request: m.Ack, call: Call = NOBODY) -> m.Acked:
        await self._reached()
        return await super().ack(request, call)

    async def nack(self, request: m.Nack, call: Call = NOBODY) -> m.Nacked:
        await self._reached()
        self.nacks.append(request)
        return await super().nack(request, call)

    async def extend_batch(self, request: m.ExtendBatch, call: Call = NOBODY) -> m.SettledBatch:
        self.renewals += 1
        await self._reached()
        return await super().extend_batch(request, call)


class World:
    """A client of that mailbox."""

    def __init__(self, **options: int) -> None:
        self.server = Switched(LoopClock(1_700_000_000.0), MemoryMailboxOptions(**options))
        self.server.nacks = []
        self.metrics = Metrics("client")
        self.keeper = LeaseKeeper(self.server, self.metrics)
        self.mailbox = MailboxClient(self.server, self.keeper, self.metrics)

    async def send(self, count: int, **said: Any) -> list[str]:
        return [(await self.mailbox.send(TOPIC, str(n), **said)).msg_id for n in range(count)]

    async def left(self) -> dict[str, int]:
        """Count what is still there."""
        try:
            stats = await self.mailbox.topic(TOPIC)
        except PenstockError:
            return {"ready": 0, "inflight": 0, "delayed": 0, "dlq": 0}
        return {"ready": stats.ready, "inflight": stats.inflight, "delayed": stats.delayed, "dlq": stats.dlq}


GONE = {"ready": 0, "inflight": 0, "delayed": 0, "dlq": 0}
AWAY = DownstreamUnavailable("mailbox is out of reach: Connection refused.")


@asynccontextmanager
async def world(**options: int) -> AsyncIterator[World]:
    """Open a client, and close it: what it leaves behind fails the test."""
    made = World(**options)
    try:
        yield made
    finally:
        await made.keeper.close()


@contextmanager
def no_logging() -> Iterator[None]:
    """Be as a program that configured no logging. Within a test: pytest listens to every logger before it begins."""
    logger = logging.getLogger("penstock.client")
    before = logger.propagate, logger.handlers[:]
    logger.propagate, logger.handlers[:] = False, []
    try:
        yield
    finally:
        logger.propagate, logger.handlers[:] = before


@asynccontextmanager
async def started(work) -> AsyncIterator[asyncio.Task]:
    """Run something beside the test; it is cancelled and awaited at the end."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
