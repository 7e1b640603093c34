"""What to do next about a call to somebody else: try again, send a second request, wait, or stop. Pure.

Whoever calls makes one plan for each call, tells it what each try came to, and does what it says:

| answer | what to do |
|---|---|
| `TRY` | make another try, after `delay_s` |
| `HEDGE` | make a second try beside the one that is late; the first good answer wins |
| `WAIT` | nothing: another try is under way, and what it comes to decides |
| `STOP` | take what the last try came to: it is the outcome of the call |

A call is tried again only if it may be repeated, another try may mend what happened, there are tries left, the pause
fits into the call's deadline, and the retry budget of the downstream allows it, in this order: so a call that would
not be repeated anyway takes nothing from the budget. The pause is drawn from the backoff, and is at least what the
peer asked for.

The plan performs nothing and reads no clock. `drive_task` performs it for callers that have a task, `drive_callback`
for callers that are told by callbacks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.kernel.backoff import CALLS, MAX_TRIES, Backoff, RetryBudget, Rng
from penstock.kernel.deadline import Deadline
from penstock.net.calls.hedge import HedgePolicy


class Act(enum.Enum):
    """What a caller does next."""

    TRY = "try"
    HEDGE = "hedge"
    WAIT = "wait"
    STOP = "stop"


class NextStep(NamedTuple):
    """What a caller does next, and after how long."""

    act: Act
    delay_s: float = 0.0
    # True where only the empty retry budget stood in the way: that is counted.
    denied: bool = False


class TryOutcome(NamedTuple):
    """What a try without a good answer came to, as far as the plan is concerned."""

    # Whether another try may bring something else.
    mendable: bool
    # The shortest pause the peer asked for.
    least_s: float = 0.0
    # Something has changed since: there is nothing to pause for.
    at_once: bool = False


FINAL: Final = TryOutcome(mendable=False)
PASSING: Final = TryOutcome(mendable=True)
AT_ONCE: Final = TryOutcome(mendable=True, at_once=True)

_STOP: Final = NextStep(Act.STOP)
_DENIED: Final = NextStep(Act.STOP, denied=True)
_WAIT: Final = NextStep(Act.WAIT)
_HEDGE: Final = NextStep(Act.HEDGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRules:
    """What the calls to one downstream have in common."""

    rng: Rng
    tries_max: int = MAX_TRIES
    backoff: Backoff = CALLS
    # None: calls are not bounded together, only one by one.
    budget: RetryBudget | None = None
    # None: no second request ever goes out beside a first.
    hedges: HedgePolicy | None = None


class CallPlan:
    """One call: how often it was tried, and what may still be done about it."""

    __slots__ = ("_deadline", "_rules", "repeatable", "tries")

    def __init__(self, rules: CallRules, deadline: Deadline | None, *, repeatable: bool) -> None:
        """Start before the first try; `repeatable` tells whether it may be done twice."""
        self._rules = rules
        self._deadline = deadline
        self.repeatable = repeatable
        # How often it was tried, hedges not counted.
        self.tries = 0

    def begin(self) -> None:
        """Count a try."""
        self.tries += 1

    @property
    def retried(self) -> bool:
        """Tell whether the latest try was a retry."""
        return self.tries > 1

    def late(self, *, running: int) -> NextStep:
        """Decide what to do about a try that is later than most, while so many are under way."""
        hedges = self._rules.hedges
        return _HEDGE if running == 1 and hedges is not None and hedges.allow() else _WAIT

    def after(self, outcome: TryOutcome, now: float, *, others: int = 0) -> NextStep:
        """Decide what to do about a try without a good answer, while so many others are under way."""
        if others:
            return _WAIT
        rules = self._rules
        if not outcome.mendable or not self.repeatable or self.tries >= rules.tries_max:
            return _STOP
        delay_s = 0.0 if outcome.at_once else max(outcome.least_s, rules.backoff.delay(self.tries - 1, rules.rng))
        if self._deadline is not None and delay_s >= self._deadline.remaining(now):
            # The caller is better served by the reason than by a timeout.
            return _STOP
        if rules.budget is not None and not rules.budget.allow(now):
            return _DENIED
        return NextStep(Act.TRY, delay_s)
