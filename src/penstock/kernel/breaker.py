"""The circuit breaker, pure: takes outcomes and `now`, says whether the next call may go out."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final

# What the subtraction of two clock readings may lose.
_SLACK_S: Final = 1e-6


class BreakerState(enum.Enum):
    """Where the breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakerPolicy:
    """When to open and how to come back. A threshold of 0 turns that trigger off."""

    window_s: float = 10.0
    samples_min: int = 20
    samples_max: int = 1024
    error_rate: float = 0.5
    p95_s: float = 0.0
    # For so long the 95th percentile has to stay above its limit before that opens the breaker; 0 is at once.
    p95_for_s: float = 0.0
    timeouts_in_a_row: int = 5
    open_s: float = 5.0
    probes: int = 1

    def __post_init__(self) -> None:
        """Refuse a probe count outside the seeds' 1-3."""
        if not 1 <= self.probes <= 3:
            message = f"half-open probes must be 1-3, not {self.probes}"
            raise ValueError(message)


# When, whether slow, whether failed: a plain tuple, because one is made for every call.
_Sample = tuple[float, bool, bool]


class Breaker:
    """One downstream's breaker. The caller asks `allow`, then reports exactly one outcome of each allowed call."""

    __slots__ = (
        "_failed",
        "_half_open_at",
        "_opened_at",
        "_policy",
        "_probes_out",
        "_probes_passed",
        "_samples",
        "_slow",
        "_slow_since",
        "_timeouts",
        "failing_since",
        "failures_in_a_row",
        "name",
        "opened",
        "state",
    )

    def __init__(self, name: str, policy: BreakerPolicy | None = None) -> None:
        self.name = name
        self.state = BreakerState.CLOSED
        self.opened = 0  # how often it opened
        # When the first call failed after the last that came back well, and how many have failed since; None: none has.
        self.failing_since: float | None = None
        self.failures_in_a_row = 0
        self._policy = policy or BreakerPolicy()
        # Bounded by `samples_max` in `_note`; the two counts are kept beside it, so that a judgement is O(1).
        self._samples: deque[_Sample] = deque()
        self._failed = 0
        self._slow = 0
        # Since when the 95th percentile is above its limit; None while it is not.
        self._slow_since: float | None = None
        self._timeouts = 0
        self._opened_at = 0.0
        self._half_open_at = 0.0
        self._probes_out = 0
        self._probes_passed = 0

    def allow(self, now: float) -> bool:
        """Tell whether a call may go out now; in half-open each yes is one of the few probes."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN and now - self._opened_at >= self._policy.open_s:
            self.state = BreakerState.HALF_OPEN
            self._half_open_at = now
            self._probes_out = self._probes_passed = 0
        if self.state is BreakerState.HALF_OPEN and self._probes_out < self._policy.probes:
            self._probes_out += 1
            return True
        return False

    def success(self, now: float, elapsed_s: float) -> None:
        """Report a call that came back well; enough good probes close the breaker."""
        self._timeouts = 0
        self.failing_since = None
        self.failures_in_a_row = 0
        if self.state is BreakerState.HALF_OPEN:
            if self._is_probe(now - elapsed_s):
                self._probes_passed += 1
            if self._probes_passed >= self._policy.probes:
                self._close()
        elif self.state is BreakerState.CLOSED:
            self._note(now, elapsed_s, failed=False)

    def failure(self, now: float, *, timed_out: bool = False, elapsed_s: float = 0.0) -> None:
        """Report a call that failed; a failed probe opens the breaker again."""
        self._timeouts = self._timeouts + 1 if timed_out else 0
        self.failures_in_a_row += 1
        if self.failing_since is None:
            self.failing_since = now
        if self.state is BreakerState.HALF_OPEN:
            if self._is_probe(now - elapsed_s):
                self._open(now)
        elif self.state is BreakerState.CLOSED:
            self._note(now, elapsed_s, failed=True)

    def _is_probe(self, began_at: float) -> bool:
        """Tell a probe from a call that went out before the breaker opened and comes back only now."""
        return began_at >= self._half_open_at - _SLACK_S

    def abandon(self) -> None:
        """Report an allowed call that ended without an outcome (cancelled): its probe place is free again."""
        if self.state is BreakerState.HALF_OPEN:
            self._probes_out = max(0, self._probes_out - 1)

    def retry_after_s(self, now: float) -> float:
        """Return how long until the next probe is due."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        return max(0.0, self._opened_at + self._policy.open_s - now)

    def _note(self, now: float, elapsed_s: float, *, failed: bool) -> None:
        """Remember an outcome, forget what left the window, and judge."""
        policy, samples = self._policy, self._samples
        slow = 0 < policy.p95_s < elapsed_s
        samples.append((now, slow, failed))
        self._failed += failed
        self._slow += slow
        oldest = now - policy.window_s
        while len(samples) > policy.samples_max or samples[0][0] < oldest:
            _, was_slow, had_failed = samples.popleft()
            self._failed -= had_failed
            self._slow -= was_slow
        self._judge(now)

    def _judge(self, now: float) -> None:
        policy = self._policy
        timed_out = 0 < policy.timeouts_in_a_row <= self._timeouts
        seen_enough = len(self._samples) >= policy.samples_min
        too_slow = seen_enough and self._slow_for_long(now)
        if timed_out or too_slow or (seen_enough and self._too_many_errors()):
            self._open(now)

    def _too_many_errors(self) -> bool:
        limit = self._policy.error_rate
        return limit > 0 and self._failed >= limit * len(self._samples)

    def _slow_for_long(self, now: float) -> bool:
        """Tell whether calls have been too slow for as long as that is borne; one good moment begins the count anew."""
        if not self._too_slow():
            self._slow_since = None
            return False
        if self._slow_since is None:
            self._slow_since = now
        return now - self._slow_since >= self._policy.p95_for_s - _SLACK_S

    def _too_slow(self) -> bool:
        """Tell whether the 95th percentile is above the limit: whether more than 5 % of the samples are."""
        return self._slow > len(self._samples) * 0.05

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opened += 1
        self._opened_at = now
        self._timeouts = 0
        self._forget()

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self._forget()

    def _forget(self) -> None:
        self._samples.clear()
        self._failed = self._slow = 0
        self._slow_since = None
