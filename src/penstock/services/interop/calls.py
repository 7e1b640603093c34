"""The discipline of every call to a service behind the bridge: deadline, retries, breaker, latency.

All calls of this service are idempotent: a claim, a content address and a token that nobody has seen yet may each be
asked for twice. So a call that failed is tried again, after 50-100 ms, then 200-400 ms, three tries in all, while the
caller's deadline leaves time for it. What the service behind refuses (its 4xx) is an answer and is not tried again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.kernel.backoff import INTEROP, MAX_TRIES, Rng
from penstock.kernel.breaker import Breaker, BreakerPolicy
from penstock.kernel.deadline import current_deadline, timeout
from penstock.kernel.errors import (
    BackoffRetry,
    Busy,
    Canceled,
    Closed,
    DownstreamUnavailable,
    Internal,
    NotReady,
    PenstockError,
    Timeout,
)

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.brownout import Brownout

T = TypeVar("T")
# What says that the service behind is not well; anything else is its answer.
_FAULTS: Final = (DownstreamUnavailable, BackoffRetry, NotReady, Internal, Timeout, Canceled, Closed)
_JITTER: Final = 0.5


class BridgeCalls:
    """One service behind: `await mailbox.call("send", lambda: contract.send_batch(...))`."""

    def __init__(
        self, inventory: Inventory, service: str, timeout_s: float, brownout: Brownout, rng: Rng | None = None
    ) -> None:
        """Declare the deadline and the counters."""
        self.service = service
        self._timeout_s = inventory.timeout(f"rpc.{service}", timeout_s, "503 downstream_unavailable")
        self._brownout = brownout
        self._clock = inventory.clock.monotonic
        self._rng = rng or random.SystemRandom()
        # Half-open after about a second: with jitter, so that several bridges do not probe together.
        open_s = 1.0 + _JITTER * self._rng.random()
        self.breaker = Breaker(
            service, BreakerPolicy(timeouts_in_a_row=5, samples_min=5, error_rate=1.0, open_s=open_s)
        )
        metrics = inventory.metrics
        self._latency = metrics.histogram("upstream_rpc_seconds", "Calls to a service behind.", service=service)
        self._failed = metrics.counter("upstream_failures_total", "Calls that brought no answer.", service=service)
        self._timeouts = metrics.counter("io_timeouts_total", "Deadlines that passed.", op=f"rpc.{service}")
        self._retries = {
            result: metrics.counter("backoff_retries_total", "Retries by what came of them.", op=service, result=result)
            for result in ("success", "failure")
        }

    async def call(self, op: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work; a service that is not well is DownstreamUnavailable in the end."""
        attempt = 0
        while True:
            self._admit()
            try:
                done = await self._try(work)
            except (*_FAULTS, Busy) as error:
                self._note_retry(attempt, "failure")
                delay_s = self._delay_s(attempt)
                if delay_s is None:
                    raise DownstreamUnavailable(
                        f"{self.service} does not answer.", op=op, service=self.service
                    ) from error
                attempt += 1
                await _rest(delay_s)
            else:
                self._note_retry(attempt, "success")
                return done

    def _admit(self) -> None:
        """Refuse at once while the breaker is open: waiting for another try would only hold the caller."""
        now = self._clock()
        if not self.breaker.allow(now):
            self._brownout.note_left_out(now)
            raise DownstreamUnavailable(f"{self.service} failed too often and is left alone.", service=self.service)

    def _note_retry(self, attempt: int, result: str) -> None:
        if attempt:
            self._retries[result].value += 1

    def _delay_s(self, attempt: int) -> float | None:
        """Return how long to wait before the next try; None when there is none left, or no time for it."""
        delay_s = INTEROP.delay(attempt, self._rng)
        deadline = current_deadline()
        late = deadline is not None and deadline.remaining(self._clock()) <= delay_s
        return None if attempt + 1 >= MAX_TRIES or late else delay_s

    async def _try(self, work: Callable[[], Awaitable[T]]) -> T:
        began = self._clock()
        try:
            async with timeout(f"rpc.{self.service}", self._timeout_s):
                done = await work()
        except PenstockError as error:
            self._report(began, error)
            raise
        except BaseException:
            self.breaker.abandon()
            raise
        self._report(began, None)
        return done

    def _report(self, began: float, error: PenstockError | None) -> None:
        now = self._clock()
        elapsed_s, failed = now - began, isinstance(error, _FAULTS)
        self._latency.observe(elapsed_s)
        self._brownout.note_call(now, elapsed_s, failed=failed)
        if not failed:
            self.breaker.success(now, elapsed_s)
            return
        late = isinstance(error, Timeout)
        self._failed.value += 1
        self._timeouts.value += late
        self.breaker.failure(now, timed_out=late, elapsed_s=elapsed_s)


async def _rest(delay_s: float) -> None:
    """Wait; the deadline in force was seen to be later than this."""
    try:
        async with timeout("backoff", delay_s):
            await asyncio.get_running_loop().create_future()
    except Timeout:
        return
