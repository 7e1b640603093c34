"""Budgets and rates: counted for each block that carries one, until it expires; a full table refuses, never forgets.

Counters are per process and not durable: the true bound is the budget times the number of verifying processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.kernel.errors import RateLimited
from penstock.kernel.limiter import TokenBucket

ACCOUNTS_MAX: Final = 65_536
Account: TypeAlias = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class CountedCaveat:
    """One counted caveat: the block that carries it, its family and its number."""

    rid: bytes
    name: str
    limit: int
    exp: int

    @property
    def account(self) -> Account:
        """Name what is counted: siblings have other blocks and so do not spend each other's."""
        return (self.rid, self.name)


@dataclass(slots=True)
class _Spent:
    exp: int
    used: int = 0
    bucket: TokenBucket | None = None


class Meter:
    """All budgets and rates one verifier counts."""

    def __init__(self, capacity: int = ACCOUNTS_MAX) -> None:
        """Bound the table."""
        self.capacity = capacity
        self.refused = 0
        self._accounts: dict[Account, _Spent] = {}
        # No account ends before this: a full table is not searched in vain.
        self._next_end: float = 0

    def __len__(self) -> int:
        """Count the accounts."""
        return len(self._accounts)

    def charge(self, counted: Iterable[CountedCaveat], cost_bytes: int, *, wall: float, now: float) -> None:
        """Charge one request to every account, or refuse it and charge nothing."""
        bills = [(each, self._account(each, wall, now), _cost(each.name, cost_bytes)) for each in counted]
        for each, spent, cost in bills:
            if not _affords(each, spent, cost, now):
                self.refused += 1
                raise _used_up(each.name)
        for _, spent, cost in bills:
            if spent.bucket is not None:
                spent.bucket.try_take(now)
            spent.used += cost

    def _account(self, each: CountedCaveat, wall: float, now: float) -> _Spent:
        spent = self._accounts.get(each.account)
        if spent is None:
            if len(self._accounts) >= self.capacity:
                self._forget_expired(wall)
            if len(self._accounts) >= self.capacity:
                self.refused += 1
                raise RateLimited("No more budgets can be counted.", scope="capability", reason="budget_table")
            depth = max(1, each.limit)
            is_rate = each.name == "rate.rps"
            bucket = TokenBucket("rate.rps", rate=each.limit, depth=depth, now=now) if is_rate else None
            spent = self._accounts[each.account] = _Spent(each.exp, bucket=bucket)
            self._next_end = min(self._next_end, each.exp)
        return spent

    def _forget_expired(self, wall: float) -> None:
        if wall < self._next_end:
            return
        self._accounts = {account: spent for account, spent in self._accounts.items() if spent.exp > wall}
        self._next_end = min((spent.exp for spent in self._accounts.values()), default=0)


def _cost(name: str, cost_bytes: int) -> int:
    return cost_bytes if name == "budget.bytes" else 1


def _affords(each: CountedCaveat, spent: _Spent, cost: int, now: float) -> bool:
    if spent.bucket is not None:
        # A bucket without a rate is off in the kernel; here a rate of nothing allows nothing.
        return each.limit > 0 and spent.bucket.level(now) >= 1
    return spent.used + cost <= each.limit


def _used_up(name: str) -> RateLimited:
    return RateLimited(f"The capability's {name} is used up.", scope="capability", reason=f"caveat:{name}")
