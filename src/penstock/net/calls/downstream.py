"""One origin as the client sees it: its pool, its breaker, its retry budget, and one try of a call."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from penstock.kernel.backoff import RetryBudget
from penstock.kernel.breaker import Breaker
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.kernel.metrics import Histogram
from penstock.net.calls.answer import AnswerTooLarge
from penstock.net.calls.call import ClientCall
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.net.calls.pool import ClientShared, OriginPool
from penstock.wire.http1.answer import AnswerHead

# A caller that gave the peer less time than this says nothing about the peer's health.
BLAME_AFTER_S: Final = 0.1
# Timeouts of other waits (a place in the pool, the caller's own body) are not the peer's.
PEER_WAITS: Final = frozenset(("connect", "read", "write"))


class OpenAnswer(msgspec.Struct, frozen=True):
    """An answer whose head is here; whoever holds it owns the connection and must release it."""

    pool: OriginPool
    connection: ClientConnection
    head: AnswerHead
    # The whole body, when it came along with the head.
    body: bytes | None = None

    def release(self) -> None:
        """Give the connection back to its pool."""
        self.pool.release(self.connection)


class OriginState:
    """Everything that is counted for one origin."""

    __slots__ = ("_service", "breaker", "budget", "calls", "latency", "pool")

    def __init__(self, origin: HttpOrigin, shared: ClientShared, latency: Histogram) -> None:
        """Start with a closed breaker and no connection."""
        self._service = shared.options.service
        self.latency = latency
        self.pool = OriginPool(origin, shared)
        self.breaker = Breaker(self._service, shared.options.breaker)
        self.budget = RetryBudget()
        # Calls that are under way, also those that wait for their next try.
        self.calls = 0

    @property
    def quiet(self) -> bool:
        """Tell whether it may be forgotten: no call and no connection is in use."""
        return not self.calls and self.pool.quiet

    def admit(self, now: float) -> BreakerReport:
        """Open one try, or refuse it while the breaker is open."""
        if not self.breaker.allow(now):
            detail = f"{self._service} failed too often and is left alone."
            raise DownstreamUnavailable(detail, retry_after=math.ceil(self.breaker.retry_after_s(now)))
        return BreakerReport(self.breaker, self.latency, now)

    async def open(self, call: ClientCall) -> OpenAnswer:
        """Send the call and wait for the answer's head.

        A kept connection may have died unnoticed. If it did so before a byte of the answer, a repeatable call is
        sent again, once, on a new connection: that is no retry, the peer most likely never saw the first.
        """
        connection = await self.pool.acquire()
        try:
            return await self._exchange(connection, call)
        except DownstreamUnavailable:
            if not (call.repeatable and connection.died_unseen):
                raise
        return await self._exchange(await self.pool.fresh(), call)

    async def _exchange(self, connection: ClientConnection, call: ClientCall) -> OpenAnswer:
        try:
            if call.at_once:
                head, body = await connection.asked(call)
                return OpenAnswer(self.pool, connection, head, body)
            await connection.send(call)  # lint: allow PK009 each wait is bounded inside
            return OpenAnswer(self.pool, connection, await connection.head())
        except BaseException:
            self.pool.release(connection)
            raise


class BreakerReport:
    """Tells the breaker, once, what an admitted try came to."""

    __slots__ = ("_began_at", "_breaker", "_latency")

    def __init__(self, breaker: Breaker, latency: Histogram, now: float) -> None:
        self._breaker = breaker
        self._latency = latency
        self._began_at = now

    def end(self, error: BaseException, now: float) -> None:
        """Report a try without an answer. One that failed for a reason of ours tells the breaker nothing."""
        elapsed_s = now - self._began_at
        if isinstance(error, Timeout) and error.op in PEER_WAITS and elapsed_s >= BLAME_AFTER_S:
            self._breaker.failure(now, timed_out=True, elapsed_s=elapsed_s)
        elif isinstance(error, DownstreamUnavailable) and not isinstance(error, AnswerTooLarge):
            self._breaker.failure(now, elapsed_s=elapsed_s)
        else:
            self._breaker.abandon()

    def answered(self, status: int, now: float) -> float:
        """Report a try with an answer; return how long it took."""
        elapsed_s = now - self._began_at
        self._latency.observe(elapsed_s)
        if status >= 500:
            self._breaker.failure(now, elapsed_s=elapsed_s)
        else:
            self._breaker.success(now, elapsed_s)
        return elapsed_s
