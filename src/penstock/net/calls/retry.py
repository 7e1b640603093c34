"""Whether a call is tried again, and when: idempotent only, a few times, within its deadline and the retry budget."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from penstock.kernel.backoff import RetryBudget, Rng
from penstock.kernel.deadline import Deadline, timeout
from penstock.kernel.errors import PenstockError, Timeout
from penstock.kernel.metrics import Metrics
from penstock.net.calls.call import ClientOptions
from penstock.net.calls.downstream import PEER_WAITS
from penstock.wire.http1.answer import AnswerHead

_RETRY_AFTER_DIGITS_MAX: Final = 6


class RetryPolicy:
    """The rules that all calls of a client share, and the count of what came of them."""

    __slots__ = ("_denied", "_failed", "_succeeded", "options", "rng")

    def __init__(self, options: ClientOptions, metrics: Metrics, rng: Rng | None = None) -> None:
        """Declare the counters; `rng` draws the jitter."""
        self.options = options
        self.rng = rng or random.SystemRandom()
        help_text = "Retries by what came of them; denied: the retry budget was empty."
        self._succeeded, self._failed, self._denied = (
            metrics.counter("backoff_retries_total", help_text, op=options.op, result=result)
            for result in ("success", "failure", "denied")
        )

    def count(self, *, succeeded: bool) -> None:
        """Count one retry."""
        (self._succeeded if succeeded else self._failed).value += 1

    def count_denied(self) -> None:
        """Count a retry that the budget refused."""
        self._denied.value += 1


class RetryPauses:
    """The calls that wait for their next try; closing the client ends them at once."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiting: set[asyncio.Future[None]] = set()

    async def pause(self, seconds: float) -> None:
        """Let the time pass, unless the client is closed meanwhile."""
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


class RetryPlan:
    """One call's retries. `begin` each try, then ask; None means that its outcome stands."""

    __slots__ = ("_budget", "_deadline", "_policy", "_repeatable", "_tries")

    def __init__(self, policy: RetryPolicy, budget: RetryBudget, deadline: Deadline, *, repeatable: bool) -> None:
        """Start before the first try."""
        self._repeatable = repeatable
        self._policy = policy
        self._budget = budget
        self._deadline = deadline
        self._tries = 0

    def begin(self) -> None:
        """Count a try."""
        self._tries += 1

    def after_error(self, error: PenstockError, now: float) -> float | None:
        """Return the seconds to wait before the next try, or None."""
        ours = isinstance(error, Timeout) and error.op not in PEER_WAITS
        return None if ours or not error.retryable else self._delay_s(0.0, now)

    def after_head(self, head: AnswerHead, now: float) -> float | None:
        """Return the seconds to wait when this status is worth another try, or None to take the answer."""
        return self._delay_s(_retry_after_s(head), now) if head.status in self._policy.options.retry_statuses else None

    def end(self, status: int) -> None:
        """Count what came of a try that was a retry; status 0: no answer."""
        if self._tries > 1:
            self._policy.count(succeeded=bool(status) and status not in self._policy.options.retry_statuses)

    def _delay_s(self, least_s: float, now: float) -> float | None:
        options = self._policy.options
        if not self._repeatable or self._tries >= options.tries_max:
            return None
        delay_s = max(least_s, options.backoff.delay(self._tries - 1, self._policy.rng))
        if delay_s >= self._deadline.remaining(now):
            return None
        if not self._budget.allow(now):
            self._policy.count_denied()
            return None
        return delay_s


def _retry_after_s(head: AnswerHead) -> float:
    """Return what the peer asked for in whole seconds; a date or nonsense asks for nothing."""
    value = head.headers.get(b"retry-after", b"")
    return float(value) if value.isdigit() and len(value) <= _RETRY_AFTER_DIGITS_MAX else 0.0
