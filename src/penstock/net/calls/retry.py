"""What an HTTP call's outcome means for its plan: which errors and statuses another try may mend, and the counters."""

from __future__ import annotations

import random
from typing import Final

from penstock.kernel.backoff import RetryBudget, Rng
from penstock.kernel.errors import Busy, PenstockError, Timeout
from penstock.kernel.metrics import Metrics
from penstock.net.calls.call import ClientOptions
from penstock.net.calls.downstream import PEER_WAITS
from penstock.net.calls.hedge import HedgePolicy
from penstock.net.calls.plan import FINAL, PASSING, CallPlan, CallRules, NextStep, TryOutcome
from penstock.wire.http1.answer import AnswerHead

_RETRY_AFTER_DIGITS_MAX: Final = 6


class HttpRetries:
    """How the calls of one client are tried again. Its retries are counted here; its downstreams keep their budgets."""

    __slots__ = ("_denied", "_failed", "_options", "_rng", "_succeeded", "statuses")

    def __init__(self, options: ClientOptions, metrics: Metrics, rng: Rng | None = None) -> None:
        """Declare the counters; `rng` draws the jitter."""
        self._options = options
        self._rng = rng or random.SystemRandom()
        # Answers that are worth another try.
        self.statuses = options.retry_statuses
        help_text = "Retries by what came of them; denied: the retry budget was empty."
        self._succeeded, self._failed, self._denied = (
            metrics.counter("backoff_retries_total", help_text, op=options.op, result=result)
            for result in ("success", "failure", "denied")
        )

    def rules(self, budget: RetryBudget, hedges: HedgePolicy | None = None) -> CallRules:
        """Return the rules of the calls to one downstream."""
        options = self._options
        return CallRules(
            rng=self._rng, tries_max=options.tries_max, backoff=options.backoff, budget=budget, hedges=hedges
        )

    def after_error(self, plan: CallPlan, error: PenstockError, now: float, *, others: int = 0) -> NextStep:
        """Ask the plan about a try without an answer."""
        return self._asked(plan, _of_error(error), now, others)

    def after_head(self, plan: CallPlan, head: AnswerHead, now: float, *, others: int = 0) -> NextStep:
        """Ask the plan about an answer; one whose status is not worth another try is taken."""
        mendable = head.status in self.statuses
        return self._asked(plan, TryOutcome(mendable, _retry_after_s(head) if mendable else 0.0), now, others)

    def _asked(self, plan: CallPlan, outcome: TryOutcome, now: float, others: int) -> NextStep:
        step = plan.after(outcome, now, others=others)
        self._denied.value += step.denied
        return step

    def count(self, plan: CallPlan, status: int) -> None:
        """Count what came of a try that was a retry; status 0: no answer."""
        if plan.retried:
            (self._succeeded if status and status not in self.statuses else self._failed).value += 1


def _of_error(error: PenstockError) -> TryOutcome:
    """Judge a try without an answer. A wait of our own (a place in the pool, the caller's body) mends nothing."""
    ours = isinstance(error, Busy) or (isinstance(error, Timeout) and error.op not in PEER_WAITS)
    return FINAL if ours or not error.retryable else PASSING


def _retry_after_s(head: AnswerHead) -> float:
    """Return what the peer asked for in whole seconds; a date or nonsense asks for nothing."""
    value = head.headers.get(b"retry-after", b"")
    return float(value) if value.isdigit() and len(value) <= _RETRY_AFTER_DIGITS_MAX else 0.0
