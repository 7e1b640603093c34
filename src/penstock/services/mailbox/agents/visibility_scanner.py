"""The VisibilityScanner: wakes at the nearest deadline and tells the worker of the shard."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from penstock.kernel.backoff import Doubling
from penstock.kernel.child import Child
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.shards.shard import Shard

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxParts

WAKE_S_MIN: Final = 0.050
WAKE_S_MAX: Final = 0.500
_TICK_S: Final = 0.001
# With the longest sleep before it, that is less than a second after a revocation.
_REJUDGE_MS: Final = 400.0
_RETRY: Final = Doubling(0.005, 0.010, cap_s=0.5)


class ScannerAlarm:
    """When the scanner plans to wake; whoever makes a nearer deadline wakes it earlier."""

    __slots__ = ("at", "rung")

    def __init__(self) -> None:
        # Monotonic milliseconds.
        self.at = math.inf
        self.rung = asyncio.Event()

    def wake(self, until: float) -> None:
        """Wake the scanner if this deadline is nearer than the one it sleeps until."""
        if until < self.at:
            self.at = until
            self.rung.set()


class VisibilityScanner:
    """Sleeps until the nearest deadline, and then tells the worker of its shard. It decides nothing itself."""

    def __init__(self, parts: MailboxParts) -> None:
        metrics = parts.inventory.metrics
        self._jitter_ms = metrics.summary("scanner_wake_jitter_ms", "How late the scanner woke, in milliseconds.")
        self._backoffs = metrics.counter("requeue_backoff_total", "Requeues that found their channel full.")
        self._state = parts.state
        self._dispatcher = parts.dispatcher
        self._alarm = parts.alarm
        self._ended = False
        self._rejudge_at = 0.0

    async def run(self, child: Child) -> None:
        """Sleep, and tell the workers what is over, until the service drains."""
        self._ended = child.shutdown.draining
        forget = child.shutdown.on_drain(self._end)
        try:
            while not self._ended:
                await self._sleep()
                self._state.follow_clock()
                self._rejudge()
                if self._state.ready:
                    await self._tell_overdue(child)
        finally:
            forget()

    def _rejudge(self) -> None:
        """Once a second, end long polls and streams whose capability is good no more."""
        now_ms = self._state.now().mono
        if now_ms >= self._rejudge_at:
            self._rejudge_at = now_ms + _REJUDGE_MS
            self._state.rejudge()

    def _end(self) -> None:
        self._ended = True
        self._alarm.rung.set()

    async def _sleep(self) -> None:
        """Sleep until the nearest deadline, but between 50 and 500 ms; a nearer one ends the sleep early."""
        state, alarm, loop = self._state, self._alarm, asyncio.get_running_loop()
        while not self._ended:
            now_ms = state.now().mono
            due_ms = state.nearest_due()
            # The worker was told a moment ago of what is over already. What is not over is waited for by a tick at
            # least.
            wait_s = min(max((due_ms - now_ms) / 1000, _TICK_S if due_ms > now_ms else WAKE_S_MIN), WAKE_S_MAX)
            alarm.at = now_ms + wait_s * 1000
            alarm.rung.clear()
            timer = loop.call_later(
                wait_s, alarm.rung.set
            )  # lint: allow PK006 ended in the same step of the loop that it wakes
            await alarm.rung.wait()
            timer.cancel()
            woken_ms = state.now().mono
            if woken_ms >= due_ms:
                self._jitter_ms.observe(woken_ms - due_ms)
                return
            if wait_s >= WAKE_S_MAX:
                return

    async def _tell_overdue(self, child: Child) -> None:
        now_ms = self._state.now().mono
        for shard in [shard for shard in self._state.shards if shard.window.next_due() <= now_ms]:
            await self._tell(shard, child)

    async def _tell(self, shard: Shard, child: Child) -> None:
        """Put the shard's number into its requeue channel, again and again until it is taken."""
        attempt = 0
        while not self._ended:
            try:
                self._dispatcher.worker(shard.index).requeue.try_send(shard.index)
                return
            except PenstockError:
                self._backoffs.value += 1
            await child.shutdown.sleep(_RETRY.delay(attempt, self._state.rng))
            attempt += 1
