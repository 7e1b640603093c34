"""The VisibilityScanner: wakes at the nearest deadline and asks the shard's worker to end what is over."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from penstock.kernel.backoff import Doubling
from penstock.kernel.child import Child
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.shard import Shard

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxState

WAKE_S_MIN: Final = 0.050
WAKE_S_MAX: Final = 0.500
_TICK_S: Final = 0.001
_RETRY: Final = Doubling(0.005, 0.010, cap_s=0.5)


class VisibilityScanner:
    """Decides nothing: it only says to the one who owns a shard that time has come."""

    def __init__(self, room: MailboxState) -> None:
        """Watch every shard of the mailroom."""
        self._room = room
        metrics = room.inventory.metrics
        self._jitter_ms = metrics.summary("scanner_wake_jitter_ms", "How late the scanner woke, in milliseconds.")
        self._backoffs = metrics.counter("requeue_backoff_total", "Requeues that found their channel full.")
        self._woken = asyncio.Event()
        self._wake_at = math.inf
        self._ended = False
        room.on_deadline = self._hint

    def _hint(self, until: float) -> None:
        """Wake earlier when a deadline is nearer than planned."""
        if until < self._wake_at:
            self._wake_at = until
            self._woken.set()

    async def run(self, child: Child) -> None:
        """Wake and ask, until the service drains."""
        self._ended = child.shutdown.draining
        forget = child.shutdown.on_drain(self._end)
        try:
            while not self._ended:
                await self._sleep()
                if self._room.writer.ready:
                    await self._ask_overdue(child)
        finally:
            forget()

    def _end(self) -> None:
        self._ended = True
        self._woken.set()

    async def _sleep(self) -> None:
        """Sleep until the nearest deadline, but between 50 and 500 ms; a nearer one ends the sleep early."""
        room, loop = self._room, asyncio.get_running_loop()
        while not self._ended:
            now_ms = room.now().mono
            due_ms = room.nearest_due()
            # What is over already was asked for a moment ago; what is not is never waited for by less than a tick.
            wait_s = min(max((due_ms - now_ms) / 1000, _TICK_S if due_ms > now_ms else WAKE_S_MIN), WAKE_S_MAX)
            self._wake_at = now_ms + wait_s * 1000
            self._woken.clear()
            timer = loop.call_later(
                wait_s, self._woken.set
            )  # lint: allow PK006 ended in the same step of the loop that it wakes
            await self._woken.wait()
            timer.cancel()
            woken_ms = room.now().mono
            if woken_ms >= due_ms:
                self._jitter_ms.observe(woken_ms - due_ms)
                return
            if wait_s >= WAKE_S_MAX:
                return

    async def _ask_overdue(self, child: Child) -> None:
        now_ms = self._room.now().mono
        for shard in [shard for shard in self._room.shards if shard.next_due() <= now_ms]:
            await self._ask(shard, child)

    async def _ask(self, shard: Shard, child: Child) -> None:
        """Put the shard's number into its requeue channel, again and again until it is taken."""
        room, attempt = self._room, 0
        while not self._ended:
            try:
                room.workers[shard.index % len(room.workers)].requeue.try_send(shard.index)
                return
            except PenstockError:
                self._backoffs.value += 1
            await child.shutdown.sleep(_RETRY.delay(attempt, room.rng))
            attempt += 1
