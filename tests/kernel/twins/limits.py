"""Limits with one planted bug each."""

from __future__ import annotations

from penstock.kernel.backoff import CALLS, INTEROP, MAILBOX, Doubling, RetryBudget
from penstock.kernel.breaker import Breaker, BreakerState
from penstock.kernel.limiter import ByteBudget, ByteShare, Limiter, TokenBucket


class TakesWhatIsThere(Limiter):
    """Takes a part of what was asked for."""

    def try_acquire_many(self, count=1) -> bool:
        return super().try_acquire_many(min(count, max(1, self.free)))


class TrustsReleases(Limiter):
    """Lets more be given back than was taken."""

    def release(self, count=1) -> None:
        self.in_use = max(0, self.in_use - count)


class SharesWithoutBound(ByteBudget):
    """One holder may take it all."""

    def share(self) -> ByteShare:
        return ByteShare(self._total, self.capacity)


class Bottomless(TokenBucket):
    """Saves tokens for ever."""

    def try_take(self, now, count=1.0) -> bool:
        self._level += max(0.0, now - self._at) * self.rate
        self._at = max(self._at, now)
        if self._level < count:
            return False
        self._level -= count
        return True


class FollowsTheClockBack(TokenBucket):
    """Takes a step back of the clock as its new now."""

    def try_take(self, now, count=1.0) -> bool:
        taken = super().try_take(now, count)
        self._at = now
        return taken


def seeds_schedule(name: str):
    """Return the real schedule of that name."""
    return {"interop": INTEROP, "calls": CALLS, "mailbox": MAILBOX}[name]


def unjittered(name: str):
    """Return schedules that send the whole crowd back at the same instant."""
    return Doubling(0.1, 0.1, cap_s=2.0)


class NoFloor(RetryBudget):
    """Leaves a quiet downstream without any retry."""

    def __init__(self) -> None:
        super().__init__(floor_per_s=0.0)


class NoWindow(RetryBudget):
    """Counts the calls of all time."""

    def __init__(self) -> None:
        super().__init__(window_s=10_000, floor_per_s=0.003)


class Deaf(Breaker):
    """Never opens."""

    def _open(self, now) -> None:
        self._timeouts = 0


class UncountedProbes(Breaker):
    """Lets everybody through once it is half open."""

    def allow(self, now) -> bool:
        self._probes_out = 0
        return super().allow(now)


class ForgivesTooSoon(Breaker):
    """A failed probe leaves it half open."""

    def failure(self, now, *, timed_out=False, elapsed_s=0.0) -> None:
        if self.state is BreakerState.HALF_OPEN:
            self._probes_out = 0
            return
        super().failure(now, timed_out=timed_out, elapsed_s=elapsed_s)


class BelievesOldNews(Breaker):
    """Takes an answer from before it opened for a probe's."""

    def _is_probe(self, began_at) -> bool:
        return True


class KeepsThePlace(Breaker):
    """An abandoned probe holds its place for ever."""

    def abandon(self) -> None:
        return


class JudgesAllTime(Breaker):
    """Has no window."""

    def _note(self, now, elapsed_s, *, failed) -> None:
        super()._note(100.0, elapsed_s, failed=failed)


class JudgesTheMaximum(Breaker):
    """Opens on a single slow answer."""

    def _too_slow(self) -> bool:
        return self._slow > 0
