"""What follows when a child ends: one pure decision over policy, exit and history."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.kernel.backoff import FullJitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernel.backoff import Rng


class Restart(enum.Enum):
    """When a child is started again (the words are Erlang's)."""

    PERMANENT = "permanent"  # always
    TRANSIENT = "transient"  # after a crash; a clean return is the end of its work
    TEMPORARY = "temporary"  # never


class Exit(enum.Enum):
    """How a child ended."""

    RETURNED = "returned"  # came to its end by itself
    CRASHED = "crashed"  # an exception escaped
    KILLED = "killed"  # cancelled by an operator or a test: counts as a crash
    STOPPED = "stopped"  # ended because the supervisor asked it to


class Escalation(enum.Enum):
    """What a crash loop leads to."""

    QUARANTINE = "quarantine"  # shut the child's gate, refuse on its channel, try again each `retry_s`
    FATAL = "fatal"  # the service is done for: /healthz 503


class Action(enum.Enum):
    """What the supervisor shall do with the child."""

    RESTART = "restart"
    FINISH = "finish"
    QUARANTINE = "quarantine"
    FATAL = "fatal"


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    """How a child is restarted. More than `crashes_max` crashes within `window_s` is a crash loop."""

    restart: Restart = Restart.TRANSIENT
    escalation: Escalation = Escalation.QUARANTINE
    backoff: FullJitter = field(default_factory=lambda: FullJitter(base_s=0.1, cap_s=30.0))
    crashes_max: int = 5
    window_s: float = 60.0
    healthy_s: float = 60.0
    retry_s: float = 60.0
    # A retried child must run this long before its gate opens and its channels take work again.
    probation_s: float = 5.0


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of a child: when it crashed lately, and how many crashes in a row the backoff counts."""

    crashes: tuple[float, ...] = ()
    streak: int = 0
    started_at: float = 0.0
    quarantined: bool = False  # until it has been healthy again, one more crash leads straight back

    def started(self, now: float) -> History:
        """Note the start of a run."""
        return replace(self, started_at=now)


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """The decision, the wait before it is carried out, and the history to remember."""

    action: Action
    delay_s: float
    history: History


def verdict(policy: RestartPolicy, ended: Exit, history: History, now: float, rng: Rng) -> RestartDecision:
    """Decide what follows an exit. Pure: the same arguments and the same dice give the same decision."""
    if ended is Exit.STOPPED or policy.restart is Restart.TEMPORARY:
        return RestartDecision(Action.FINISH, 0.0, history)
    if ended is Exit.RETURNED:
        again = policy.restart is Restart.PERMANENT
        # A clean return is not a crash: it is not counted, but a permanent child that returns at once must
        # not spin, so it waits as if it had failed once.
        delay_s = policy.backoff.delay(0, rng) if again else 0.0
        return RestartDecision(Action.RESTART if again else Action.FINISH, delay_s, history)
    return _after_crash(policy, history, now, rng)


def _after_crash(policy: RestartPolicy, history: History, now: float, rng: Rng) -> RestartDecision:
    crashes = (*_recent(history.crashes, now - policy.window_s), now)
    was_healthy = now - history.started_at >= policy.healthy_s
    streak = 0 if was_healthy else history.streak
    on_probation = history.quarantined and not was_healthy
    if len(crashes) <= policy.crashes_max and not on_probation:
        remembered = History(crashes, streak + 1, history.started_at)
        return RestartDecision(Action.RESTART, policy.backoff.delay(streak, rng), remembered)
    remembered = History(crashes, streak + 1, history.started_at, quarantined=True)
    if policy.escalation is Escalation.FATAL:
        return RestartDecision(Action.FATAL, 0.0, remembered)
    return RestartDecision(Action.QUARANTINE, policy.retry_s, remembered)


def _recent(crashes: Sequence[float], since: float) -> tuple[float, ...]:
    return tuple(at for at in crashes if at > since)
