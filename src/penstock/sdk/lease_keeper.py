"""Renews the leases of messages that are being worked on: one task for all, and one call for all that are due.

A lease is renewed when a third of it has passed, so that two failed renewals in a row lose nothing. One that the
mailbox calls stale, or that ran out before a renewal came through, is lost, and its holder is told at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Final, Protocol

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, PenstockError, Timeout
from penstock.kernel.metrics import Metrics
from penstock.kernel.scope import Scope
from penstock.sdk.errors import ClientClosed, LeaseLost
from penstock.sdk.telling.lines import tell
from penstock.sdk.telling.loop_stalls import LoopStalls, tick_s

_GONE: Final = frozenset({"conflict", "not_found"})
_PARTS: Final = 3
# What is due this soon rides with what is due now.
_TOGETHER_S: Final = 0.05
_AGAIN_S_MIN: Final = 0.05
# A holder lets go this much before the mailbox gives the message to another: a part of the lease, at most so long.
_MARGIN_PART: Final = 50
_MARGIN_S_MAX: Final = 0.1


def sure_s(visibility_ms: int) -> float:
    """Return how long a lease can be counted on, from when it was given."""
    lease_s = visibility_ms / 1000
    return lease_s - min(lease_s / _MARGIN_PART, _MARGIN_S_MAX)


class HeldLease(Protocol):
    """A lease that somebody works under. Times are the loop's."""

    msg_id: str
    receipt: str
    visibility_ms: int
    # Until when the lease can be counted on.
    ends_at: float
    renew_at: float

    def lose(self, lost: LeaseLost) -> None:
        """Learn that the lease is lost."""
        ...


class LeaseKeeper:
    """Renews every held lease. Its task runs only while something is held, and ends with the client."""

    def __init__(self, mailbox: m.Mailbox, metrics: Metrics) -> None:
        self._mailbox = mailbox
        self._scope = Scope("lease_keeper", 1, metrics)
        self._held: dict[HeldLease, None] = {}
        # The instant the task sleeps until, and what wakes it earlier.
        self._due_at = 0.0
        self._wake: asyncio.Event | None = None
        self._stalls = LoopStalls()
        # Whether the last renewal failed: one line tells of an outage, not of each try.
        self._failing = False
        self._renewed = metrics.counter("leases_renewed_total", "Leases that were lengthened.")
        self._lost = metrics.counter("leases_lost_total", "Leases that ended before their holder did.")

    def __len__(self) -> int:
        """Return how many leases are held."""
        return len(self._held)

    @property
    def closed(self) -> bool:
        """Tell whether the client is closed, and no lease is kept any more."""
        return self._scope.closed

    def hold(self, lease: HeldLease) -> None:
        """Renew this lease from now on, until it is released."""
        lease.renew_at = min(lease.ends_at - lease.visibility_ms / 1000 * (1 - 1 / _PARTS), lease.ends_at)
        if self.closed:
            raise ClientClosed
        if self._wake is None:
            # In a context of its own: the deadline of whoever enters first is not the keeper's.
            contextvars.Context().run(self._scope.start, self._run())
            self._wake = asyncio.Event()
            self._stalls.expect(asyncio.get_running_loop().time())
        elif lease.renew_at < self._due_at:
            self._wake.set()
        self._held[lease] = None

    def release(self, lease: HeldLease) -> None:
        """Stop renewing this lease. If it was the only one, the keeper may have no turn after a stall to tell of it."""
        if lease in self._held:
            self._stalls.turn(asyncio.get_running_loop().time(), lease.visibility_ms)
            del self._held[lease]

    async def close(self) -> None:
        """Stop renewing, and tell every holder that its lease is lost: it could no longer settle."""
        for lease in tuple(self._held):
            self._lose(lease, "client_closed")
        await self._scope.close()

    async def _run(self) -> None:
        assert self._wake is not None
        try:
            while self._held:
                now = asyncio.get_running_loop().time()
                shortest_ms = min(lease.visibility_ms for lease in self._held)
                self._stalls.turn(now, shortest_ms)
                self._due_at = min(lease.renew_at for lease in self._held)
                if self._due_at > now:
                    await self._sleep(min(self._due_at, now + tick_s(shortest_ms)))
                    continue
                self._lose_ended(now)
                await self._renew([lease for lease in self._held if lease.renew_at <= now + _TOGETHER_S])
        finally:
            self._wake = None

    async def _sleep(self, until: float) -> None:
        assert self._wake is not None
        self._wake.clear()
        self._stalls.expect(until)
        try:
            async with timeout("lease_keeper", until - asyncio.get_running_loop().time()):
                await self._wake.wait()
        except Timeout:
            return

    async def _renew(self, due: list[HeldLease]) -> None:
        for start in range(0, len(due), m.BATCH_MAX):
            await self._renew_batch(due[start : start + m.BATCH_MAX])

    def _lose_ended(self, now: float) -> None:
        """Declare ended leases lost without asking the mailbox: another consumer may have the message."""
        for lease in [lease for lease in self._held if lease.ends_at <= now]:
            self._lose(lease, "not_renewed")

    def _patience_s(self, due: list[HeldLease], now: float) -> float:
        """Return how long to wait for a silent node: a third of the shortest lease, and never beyond the end of any."""
        third_s = max(_AGAIN_S_MIN, min(lease.visibility_ms for lease in due) / 1000 / _PARTS)
        ends_at = min((lease.ends_at for lease in self._held), default=now + third_s)
        return min(third_s, max(0.0, ends_at - now))

    async def _renew_batch(self, due: list[HeldLease]) -> None:
        began_at = asyncio.get_running_loop().time()
        patience_s = self._patience_s(due, began_at)
        self._stalls.expect(began_at + patience_s)
        extends = tuple(m.Extend(lease.msg_id, lease.receipt, lease.visibility_ms) for lease in due)
        codes: list[object]
        try:
            async with timeout("extend", patience_s):
                results = (await self._mailbox.extend_batch(m.ExtendBatch(extends))).results
            if len(results) != len(due):
                raise DownstreamUnavailable("The answer is about other leases.", status=502)
            codes = [result.code for result in results]
            self._failing = False
        except PenstockError as error:
            self._tell_failing(due, error)
            codes = [error.code] * len(due)
        for lease, code in zip(due, codes, strict=True):
            self._take(lease, code, began_at)

    def _tell_failing(self, due: list[HeldLease], error: PenstockError) -> None:
        if self._failing:
            return
        self._failing = True
        many = len(due) > 1
        count, end = (f"{len(due)} leases were", "they end") if many else ("a lease was", "it ends")
        line = f"{count} not renewed: {str(error).rstrip('.')}; renewing is tried again until {end}"
        tell("lease.not_renewed", line, count=len(due), code=error.code)

    def _take(self, lease: HeldLease, code: object, began_at: float) -> None:
        """Note the result of one renewal, unless the lease was released meanwhile."""
        now = asyncio.get_running_loop().time()
        if lease not in self._held:
            return
        if not isinstance(code, str):
            self._renewed.value += 1
            lease.ends_at = began_at + sure_s(lease.visibility_ms)
            lease.renew_at = began_at + lease.visibility_ms / 1000 / _PARTS
        elif code in _GONE or now >= lease.ends_at:
            self._lose(lease, "stale_receipt" if code in _GONE else "not_renewed")
        else:
            lease.renew_at = min(now + max(_AGAIN_S_MIN, lease.visibility_ms / 10_000), lease.ends_at)

    def _lose(self, lease: HeldLease, reason: str) -> None:
        self._held.pop(lease, None)
        self._lost.value += 1
        lease.lose(LeaseLost(reason=reason))
