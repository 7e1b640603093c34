"""The discipline of every call into a service behind the gateway: places, breaker, deadline, retries, hedge, latency.

| what happened | what the caller gets |
|---|---|
| all places are taken | it waits its tenant's turn, within its deadline |
| too many wait for one | `Busy` 429, at once |
| the breaker is open, or the service cannot be reached | `DownstreamUnavailable` 503 |
| the deadline passed | `Timeout` 504, `op = "rpc"` |
| the service said no | its own error, untouched |

The deadline is the caller's, less a reserve for the way back, and never longer than the downstream's own limit. Only
idempotent work is tried again: after 50-100 ms, doubling, three tries in all, within the deadline and a retry budget.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.kernel.backoff import CALLS, MAX_TRIES, Backoff, RetryBudget, Rng
from penstock.kernel.breaker import Breaker, BreakerPolicy, BreakerState
from penstock.kernel.deadline import Deadline, current_deadline, timeout, use_deadline
from penstock.kernel.errors import BackoffRetry, DownstreamUnavailable, Internal, NotReady, PenstockError, Timeout
from penstock.kernel.scope import Scope
from penstock.net.calls.drive_task import RetryPauses, TryAgain, drive
from penstock.net.calls.hedge import HedgePolicy
from penstock.net.calls.plan import FINAL, PASSING, Act, CallPlan, CallRules
from penstock.services.omnigate.own.fair_slots import CALLER, FairSlots

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.metrics import Counter, Metrics

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]

# Left of the caller's deadline for the way back.
RESERVE_S: Final = 0.020
# What says that the service is not well; anything else is an answer.
FAULTS: Final = (DownstreamUnavailable, BackoffRetry, NotReady, Internal, Timeout)
# Of those, what another try may mend. A bug stays one, and after a deadline there is no time left.
_PASSING: Final = (DownstreamUnavailable, BackoffRetry, NotReady)
# What a try may have spent of its time before it began to count.
_SLACK_S: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class DownstreamOptions:
    """The bounds of one downstream."""

    service: str
    calls_max: int = 128
    # Calls that may wait for a place; the gate lets no more in than it has slots.
    waiters_max: int = 512
    timeout_s: float = 5.0
    # A caller that gave less time than this says nothing about the service.
    patience_s: float = 2.0
    tries_max: int = MAX_TRIES
    hedge: bool = False
    backoff: Backoff = CALLS
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


class Downstream:
    """One service behind the gateway: `await mailbox.call("send", lambda: contract.send(...), idempotent=False)`."""

    def __init__(
        self,
        inventory: Inventory,
        options: DownstreamOptions,
        *,
        rng: Rng | None = None,
        shedding: Callable[[], bool] = lambda: False,
    ) -> None:
        """Declare its places, its deadline and its counters; no hedge goes out while `shedding` says so."""
        service, metrics = options.service, inventory.metrics
        self.options = options
        self.places = inventory.limiter(f"downstream.{service}", options.calls_max)
        self.line = FairSlots(self.places, options.waiters_max)
        policy = "calls that wait for a place, by turns of their tenants; full: Busy"
        inventory.limit(
            f"downstream.{service}.line", options.waiters_max, policy, lambda: {"in_use": self.line.waiting}
        )
        inventory.timeout(f"downstream.{service}", options.timeout_s, "Timeout, 504")
        self.breaker = Breaker(service, options.breaker)
        tell_breaker(metrics, self.breaker, service)
        self._clock = inventory.clock.monotonic
        self._budget = RetryBudget()
        self._hedges = HedgePolicy(shedding)
        self._rules = CallRules(
            rng=rng or random.SystemRandom(),
            tries_max=options.tries_max,
            backoff=options.backoff,
            budget=self._budget,
            hedges=self._hedges,
        )
        self._pauses = RetryPauses()
        patience_s = min(options.patience_s, options.timeout_s)
        self._blame_after_s = max(patience_s - RESERVE_S, patience_s / 2) - _SLACK_S
        self._scope = Scope("hedge", options.calls_max * 2, metrics)
        self._counts = DownstreamCounts(inventory, service)

    @property
    def healthy(self) -> bool:
        """Tell whether the breaker is closed."""
        return self.breaker.state is BreakerState.CLOSED

    async def call(self, op: str, work: Work[T], *, idempotent: bool, extra_s: float = 0.0) -> T:
        """Do the work under the discipline. A long poll says in `extra_s` how much longer than others it may take."""
        now = self._clock()
        with use_deadline(self._deadline(now, extra_s)) as deadline:
            assert deadline is not None
            if not self.line.try_take():
                async with timeout("rpc", deadline.remaining(now)):
                    await self.line.wait(CALLER.get())
            try:
                self._budget.record_call(now)
                plan = CallPlan(self._rules, deadline, repeatable=idempotent)
                return await drive(lambda: self._planned(op, work, deadline, plan), self._pauses.pause)
            finally:
                self.line.give()

    async def close(self) -> None:
        """Cut the hedges that are still under way."""
        await self._scope.close()

    def _deadline(self, now: float, extra_s: float) -> Deadline:
        limit_s, outer = self.options.timeout_s + extra_s, current_deadline()
        if outer is None:
            return Deadline.after(limit_s, now)
        left_s = outer.remaining(now)
        limit_s = min(limit_s, max(left_s - RESERVE_S, left_s / 2))
        return Deadline(now + limit_s, limit_s, outer.since)

    # --- tries

    async def _planned(self, op: str, work: Work[T], deadline: Deadline, plan: CallPlan) -> T | TryAgain:
        """Try once; the plan decides whether a failure is the caller's, or another try follows."""
        plan.begin()
        try:
            done = await self._try(work, deadline, plan)
        except _PASSING as error:
            self._counts.retried(op, plan, succeeded=False)
            step = plan.after(FINAL if is_absent(error) else PASSING, self._clock())
            if step.act is not Act.TRY:
                raise
            return TryAgain(step.delay_s)
        self._counts.retried(op, plan, succeeded=True)
        return done

    async def _try(self, work: Work[T], deadline: Deadline, plan: CallPlan) -> T:
        """Try once, and tell the breaker and the counters how it went, whichever way it ends."""
        began = self._clock()
        self._admit(began)
        try:
            async with timeout("rpc", deadline.remaining(began)):
                done = await (self._raced(work, plan) if self.options.hedge and plan.repeatable else work())
        except PenstockError as error:
            self._report(error, began)
            raise
        except BaseException:
            self.breaker.abandon()
            raise
        elapsed_s = self._clock() - began
        self._counts.latency.observe(elapsed_s)
        self._hedges.observe(elapsed_s)
        self.breaker.success(self._clock(), elapsed_s)
        return done

    def _admit(self, now: float) -> None:
        if not self.breaker.allow(now):
            self._counts.refused()
            wait_s = max(1, math.ceil(self.breaker.retry_after_s(now)))
            raise DownstreamUnavailable(
                f"{self.options.service} failed too often and is left alone.", retry_after=wait_s
            )

    def _report(self, error: PenstockError, began: float) -> None:
        now = self._clock()
        elapsed_s, late = now - began, isinstance(error, Timeout)
        if is_absent(error):
            # Nobody was ever there, and that is no illness: what is left out must not hold up the rest.
            self.breaker.abandon()
            return
        if not isinstance(error, FAULTS):
            # It said no, and that is an answer.
            self._counts.latency.observe(elapsed_s)
            self.breaker.success(now, elapsed_s)
            return
        self._counts.failed(error)
        if late and elapsed_s < self._blame_after_s:
            self.breaker.abandon()
        else:
            self.breaker.failure(now, timed_out=late, elapsed_s=elapsed_s)

    # --- hedge

    async def _raced(self, work: Work[T], plan: CallPlan) -> T:
        """Do the work, and once more when it is later than most; the first answer wins and the other is cut."""
        wait_s = self._hedges.begin()
        if wait_s is None:
            return await work()
        first = self._scope.start(_awaited(work))
        racers = {first}
        try:
            done, _ = await asyncio.wait(racers, timeout=wait_s)
            if not done and plan.late(running=1).act is Act.HEDGE:
                racers.add(self._scope.start(_awaited(work)))
            winner = await _first_good(racers)
            if len(racers) > 1:
                self._counts.hedged(won=winner is not first)
            return winner.result()
        finally:
            for racer in racers:
                racer.cancel()


def is_absent(error: PenstockError) -> bool:
    """Tell whether a service was not found because none was set up, rather than because it fell."""
    return isinstance(error, NotReady) and error.facts.get("phase") == "absent"


async def _awaited(work: Work[T]) -> T:
    return await work()


async def _first_good(racers: set[asyncio.Task[T]]) -> asyncio.Task[T]:
    """Wait for the first that succeeds; when none does, the last failure stands."""
    left = set(racers)
    while True:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        good = [racer for racer in done if not racer.cancelled() and racer.exception() is None]
        if good or not left:
            return (good or list(done))[0]


class DownstreamCounts:
    """What is counted about one downstream."""

    def __init__(self, inventory: Inventory, service: str) -> None:
        """Declare the series, so that they are there before the first event."""
        self._metrics = inventory.metrics
        self._service = service
        self.latency = self._metrics.histogram("downstream_latency_seconds", LATENCY, service=service)
        self._timeouts = self._metrics.counter("io_timeouts_total", "Deadlines that passed.", op="rpc")
        # There from the start: of a series that begins with its first event nobody sees that event as growth.
        self._errors = {
            reason: self._metrics.counter("downstream_errors_total", ERRORS, service=service, reason=reason)
            for reason in ("breaker_open", DownstreamUnavailable.code, Timeout.code)
        }
        self._metrics.declare("counter", "hedges_total", HEDGES, "service", "result")
        self._metrics.declare("counter", "backoff_retries_total", RETRIES, "op", "result")

    def failed(self, error: PenstockError) -> None:
        """Count a call without an answer, or one that was cut."""
        self._error(error.reason).value += 1
        if isinstance(error, Timeout) and error.op == "rpc":
            self._timeouts.value += 1

    def refused(self) -> None:
        """Count a call that the open breaker did not let out: for its caller, too, there is no answer."""
        self._error("breaker_open").value += 1

    def _error(self, reason: str) -> Counter:
        found = self._errors.get(reason)
        if found is None:
            found = self._errors[reason] = self._metrics.counter(
                "downstream_errors_total", ERRORS, service=self._service, reason=reason
            )
        return found

    def retried(self, op: str, plan: CallPlan, *, succeeded: bool) -> None:
        """Count what came of a try that was a retry."""
        if plan.retried:
            result = "success" if succeeded else "failure"
            self._metrics.counter("backoff_retries_total", op=op, result=result).value += 1

    def hedged(self, *, won: bool) -> None:
        """Count a hedge by whether it was worth it."""
        result = "won" if won else "lost"
        self._metrics.counter("hedges_total", service=self._service, result=result).value += 1


def tell_breaker(metrics: Metrics, breaker: Breaker, service: str, upstream: str = "") -> None:
    """Show whether a breaker lets calls out; a configured route has one for each of its upstreams."""
    read = partial(_is_open, breaker)
    metrics.gauge(BREAKER, "1 while calls are refused, but for probes.", read=read, service=service, upstream=upstream)


def _is_open(breaker: Breaker) -> float:
    # A probe that is under way changes nothing for the others.
    return 0.0 if breaker.state is BreakerState.CLOSED else 1.0


BREAKER: Final = "breaker_open"
LATENCY: Final = "From the call to its answer's first byte."
ERRORS: Final = "Calls to a downstream without a whole answer; breaker_open: refused at once, as others had failed."
HEDGES: Final = "Second requests by whether they were the first to be answered."
RETRIES: Final = "Retries by what came of them; denied: the retry budget was empty."
