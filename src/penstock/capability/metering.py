"""Budgets and rates: counted for each block that carries one, until it expires or is revoked.

Any holder can narrow a token as often as he likes, and each narrowing that carries a budget opens an account of its
own. So nobody may fill the table: one token's narrowings have a fixed number of accounts together, and a tenant may
open one only while it has fewer than are free. A tenant that floods the table leaves half of it to the others; what
is refused is its own. An account is never forgotten while its block can still be used, because forgetting would give
the budget back.

Counters are per process and not durable: the true bound is the budget times the number of verifying processes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from penstock.capability.floors import Floors
from penstock.capability.token import TokenRoot
from penstock.kernel.errors import RateLimited
from penstock.kernel.limiter import TokenBucket

ACCOUNTS_MAX: Final = 65_536
# For all narrowings of one issued token together.
TOKEN_ACCOUNTS_MAX: Final = 256
# So many accounts are looked at in one call after something was revoked: about a millisecond.
_JUDGED_A_CALL: Final = 256
Account: TypeAlias = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class CountedCaveat:
    """One counted caveat: the block that carries it, its family and its number, and whose token it is."""

    name: str
    limit: int
    exp: int
    root: TokenRoot
    # The ids of the blocks up to the one that carries it.
    rids: tuple[bytes, ...]

    @property
    def account(self) -> Account:
        """Name what is counted: siblings have other blocks and so do not spend each other's."""
        return (self.rids[-1], self.name)


@dataclass(slots=True)
class _Spent:
    opened_for: CountedCaveat
    used: int = 0
    bucket: TokenBucket | None = None


class Meter:
    """All budgets and rates one verifier counts."""

    def __init__(self, capacity: int = ACCOUNTS_MAX) -> None:
        self.capacity = capacity
        self.refused = 0
        self._accounts: dict[Account, _Spent] = {}
        # How many of them each root token and each tenant has.
        self._of_token: Counter[bytes] = Counter()
        self._of_tenant: Counter[str] = Counter()
        # A heap: the account that ends next is first.
        self._ends: list[tuple[int, Account]] = []
        # The floors the accounts were last judged by, and those still to be judged by them.
        self._floors: Floors | None = None
        self._unjudged: list[Account] = []

    def __len__(self) -> int:
        """Count the accounts."""
        return len(self._accounts)

    def charge(
        self,
        counted: Iterable[CountedCaveat],
        cost_bytes: int,
        *,
        wall: float,
        now: float,
        floors: Floors | None = None,
    ) -> None:
        """Charge one request to every account, or refuse it and charge nothing."""
        self._forget_expired(wall)
        self._forget_revoked(floors)
        bills = [(each, self._account(each, now), _cost(each.name, cost_bytes)) for each in counted]
        for each, spent, cost in bills:
            if not _affords(each, spent, cost, now):
                self.refused += 1
                raise _used_up(each.name)
        for _, spent, cost in bills:
            if spent.bucket is not None:
                spent.bucket.try_take(now)
            spent.used += cost

    def _account(self, each: CountedCaveat, now: float) -> _Spent:
        spent = self._accounts.get(each.account)
        if spent is None:
            self._check_room(each.root)
            depth = max(1, each.limit)
            is_rate = each.name == "rate.rps"
            bucket = TokenBucket("rate.rps", rate=each.limit, depth=depth, now=now) if is_rate else None
            spent = self._accounts[each.account] = _Spent(each, bucket=bucket)
            self._of_token[each.root.tid] += 1
            self._of_tenant[each.root.owner] += 1
            heapq.heappush(self._ends, (each.exp, each.account))
        return spent

    def _check_room(self, root: TokenRoot) -> None:
        """Refuse an account that would take a place from others."""
        if self._of_token[root.tid] >= TOKEN_ACCOUNTS_MAX:
            full = "token"
        elif self._of_tenant[root.owner] >= self.capacity - len(self._accounts):
            full = "tenant"
        else:
            return
        self.refused += 1
        raise RateLimited(
            f"No more budgets of this {full} can be counted.", scope="capability", reason="budget_table", share=full
        )

    def _forget_expired(self, wall: float) -> None:
        ends = self._ends
        while ends and ends[0][0] <= wall:
            self._forget(heapq.heappop(ends)[1])

    def _forget_revoked(self, floors: Floors | None) -> None:
        """Let go what a revocation hit; the work is spread over calls, because the table may be large."""
        if floors is not None and floors is not self._floors:
            self._floors, self._unjudged = floors, list(self._accounts)
        if not self._unjudged or self._floors is None:
            return
        looked_at = self._unjudged[-_JUDGED_A_CALL:]
        del self._unjudged[-_JUDGED_A_CALL:]
        for account in looked_at:
            spent = self._accounts.get(account)
            if spent is not None and self._floors.hits(spent.opened_for.root, spent.opened_for.rids):
                self._forget(account)

    def _forget(self, account: Account) -> None:
        spent = self._accounts.pop(account, None)
        if spent is None:
            # It was revoked before it expired.
            return
        root = spent.opened_for.root
        _count_down(self._of_token, root.tid)
        _count_down(self._of_tenant, root.owner)


K = TypeVar("K")


def _count_down(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]


def _cost(name: str, cost_bytes: int) -> int:
    return cost_bytes if name == "budget.bytes" else 1


def _affords(each: CountedCaveat, spent: _Spent, cost: int, now: float) -> bool:
    if spent.bucket is not None:
        # A bucket without a rate is off in the kernel; here a rate of nothing allows nothing.
        return each.limit > 0 and spent.bucket.level(now) >= 1
    return spent.used + cost <= each.limit


def _used_up(name: str) -> RateLimited:
    return RateLimited(f"The capability's {name} is used up.", scope="capability", reason=f"caveat:{name}")
