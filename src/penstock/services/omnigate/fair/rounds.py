"""Surplus round robin in constant time: each flow has one turn a round, and one in debt skips as many as it owes. Pure.

A flow is served while its deficit is above zero, so its last request may cost more than it had left. The difference
is a debt that its share of later rounds pays off. A flow in debt is filed under the round in which its deficit is above
zero again, so nobody takes an empty turn; when only flows in debt wait, the first of these rounds begins at once.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from penstock.services.omnigate.fair.chain import Chain, ChainNode

DEBT_ROUNDS: Final = 64
"""The largest debt in quanta, and so the number of rounds somebody may have to wait."""
_BUCKETS: Final = DEBT_ROUNDS + 1


class Flow(ChainNode):
    """One participant of the rounds: its share of a round, and what it has left or owes."""

    __slots__ = ("deficit", "due_quanta", "due_round", "quantum")

    def __init__(self, quantum: int) -> None:
        """Start with nothing, owing nothing."""
        super().__init__()
        self.quantum = quantum
        self.deficit = 0
        # The rounds it waits for, credited when its turn comes, and the number of the one it waits for.
        self.due_quanta = 0
        self.due_round = 0

    def charge(self, cost: int) -> None:
        """Subtract a cost. The debt is bounded."""
        least = -DEBT_ROUNDS * self.quantum
        deficit = self.deficit - cost
        self.deficit = max(least, deficit)

    def pass_by(self, cost: int) -> None:
        """Charge a request that found nobody waiting: it counts as a turn, and only a debt is kept of it."""
        self.charge(cost - self.quantum)
        if self.deficit > 0:
            self.deficit = 0


F = TypeVar("F", bound=Flow)


class Rounds(Generic[F]):
    """The flows that have something waiting, by the round of their next turn."""

    __slots__ = ("_buckets", "_now", "_occupied", "steps", "waiting")

    def __init__(self) -> None:
        """Start before the first round, without flows."""
        self._buckets: tuple[Chain[F], ...] = tuple(Chain() for _ in range(_BUCKETS))
        self._now = 0
        # One bit a bucket: the next one in use is found without looking at the others.
        self._occupied = 0
        self.waiting = 0
        """How many flows wait for a turn."""
        self.steps = 0
        """How often a flow was filed or a round begun: what one decision costs, for tests that count."""

    def join(self, flow: F) -> None:
        """File a flow that has something waiting now; its turn is in the next round, or when its debt is paid."""
        self.waiting += 1
        self._file(flow)

    def leave(self, flow: F) -> None:
        """Remove a flow that has nothing waiting. It loses what it did not use and keeps its debt.

        The rounds it waited count, or a debtor who asks again and again with little patience would never be done.
        """
        self.waiting -= 1
        flow.unlink()
        if flow.due_quanta:
            rounds_left = (flow.due_round - self._now) % _BUCKETS
            flow.deficit += (flow.due_quanta - rounds_left) * flow.quantum
            flow.due_quanta = 0
        if flow.deficit > 0:
            flow.deficit = 0

    def head(self) -> F | None:
        """Return the flow whose turn it is, credited with its rounds; begin the next round when this one is over."""
        while True:
            flow = self._buckets[self._now].first
            if flow is None:
                if not self._next_round():
                    return None
                continue
            if flow.due_quanta:
                flow.deficit += flow.due_quanta * flow.quantum
                flow.due_quanta = 0
            if flow.deficit > 0:
                return flow
            # Its turn is over, or it was charged since: it waits for the round that changes this.
            flow.unlink()
            self._file(flow)

    def flows(self) -> list[F]:
        """Return all flows that wait, in linear time."""
        return [flow for bucket in self._buckets for flow in bucket.nodes()] if self.waiting else []

    def _file(self, flow: F) -> None:
        self.steps += 1
        quanta = -flow.deficit // flow.quantum + 1
        # A debt at its very bound pays off one quantum late; there is no bucket for that.
        flow.due_quanta = quanta = min(quanta, DEBT_ROUNDS)
        flow.due_round = index = (self._now + quanta) % _BUCKETS
        self._buckets[index].append(flow)
        self._occupied |= 1 << index

    def _next_round(self) -> bool:
        """Go to the next round in which somebody has a turn; tell whether there is one."""
        self.steps += 1
        occupied = self._occupied = self._occupied & ~(1 << self._now)
        if not occupied:
            return False
        later = occupied >> self._now
        ahead = later or occupied
        index = (ahead & -ahead).bit_length() - 1
        self._now = index + self._now if later else index
        return True
