"""What a request is expected to cost, in bytes: averages of what requests of its route really cost. Pure."""

from __future__ import annotations

from typing import Final

LEAST_COST: Final = 1024
MOST_COST: Final = 4 << 20
WORK_BYTES_A_MS: Final = 4096
"""What a millisecond of our own work is worth."""
WAIT_BYTES_A_MS: Final = WORK_BYTES_A_MS // 10
"""What a millisecond of waiting for a downstream is worth: a tenth."""
_WEIGHT: Final = 1 / 16
_HIGH: Final = 0.9


def spent(bytes_seen: int, served_s: float, worked_s: float = 0.0) -> int:
    """Return what a request cost: its bytes in both directions, its duration, and the work it reported."""
    return bytes_seen + int(served_s * (1000 * WAIT_BYTES_A_MS) + worked_s * (1000 * WORK_BYTES_A_MS))


class RouteCost:
    """The average cost of one route."""

    __slots__ = ("average", "high")

    def __init__(self) -> None:
        # Beyond the body that a request announces: its answer and its time.
        self.average = 0.0
        # The nine tenth quantile of everything, for bodies of unknown length.
        self.high = float(LEAST_COST)

    def expect(self, length: int) -> int:
        """Estimate a request with a body of `length` bytes, or of unknown length when that is negative."""
        cost = int(self.high if length < 0 else length + self.average)
        return LEAST_COST if cost < LEAST_COST else min(cost, MOST_COST)

    def learn(self, length: int, cost: int) -> None:
        """Learn what a request really cost. The value is capped, so that a long stream does not distort the average."""
        rest = min(cost - length if length > 0 else cost, MOST_COST)
        self.average += _WEIGHT * ((max(0, rest)) - self.average)
        # Steps up weigh nine times those down: they balance where a tenth of the costs lies above.
        step = self.high * _WEIGHT
        self.high += step * _HIGH if cost > self.high else step * (_HIGH - 1)
        if self.high < LEAST_COST:
            self.high = float(LEAST_COST)
        elif self.high > MOST_COST:
            self.high = float(MOST_COST)
