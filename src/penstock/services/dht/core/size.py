"""How many nodes there are, estimated from how dense the nearest ones to a target lie. Pure.

If N ids are spread evenly, the k-th nearest to any target lies at about k/N of the key space. So a completed walk whose
k-th answer is at the share x of the space says N = (k - 1) / x + 1. One walk errs by about a quarter; the median of the
last 32 does not. Nodes that crowd much closer around a key than that are a sign of an attack on the key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

from penstock.services.dht.core.ids import ID_BITS

WALKS_MAX: Final = 32
CROWDED: Final = 0.35
SPACE: Final = 1 << ID_BITS


class SizeEstimate:
    """The estimate of one node."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._walks: deque[float] = deque(maxlen=WALKS_MAX)
        self._known = 0
        self.suspicions = 0

    def walked(self, target: int, nearest: Sequence[int]) -> bool:
        """Take in the ids a completed walk ended with; True when they lie suspiciously dense."""
        if len(nearest) < self._k:
            self._known = len(nearest)
            return False
        share = max((nearest[self._k - 1] ^ target) / SPACE, 1 / SPACE)
        crowded = len(self._walks) >= self._walks_min and share < CROWDED * self._k / self.nodes
        self.suspicions += crowded
        if not crowded:
            # A crowd is not evidence of a large network.
            self._walks.append((self._k - 1) / share + 1)
        return crowded

    @property
    def _walks_min(self) -> int:
        return 8

    def know(self, contacts: int) -> None:
        """Say how many contacts there are, which is the estimate of a network smaller than k."""
        self._known = contacts

    @property
    def nodes(self) -> float:
        """Return how many nodes there are, this one included."""
        return median(self._walks) if self._walks else self._known + 1.0

    @property
    def radius(self) -> int:
        """Return the distance within which about k nodes lie: the k-radius."""
        return min(int(self._k / max(self.nodes, 1.0) * SPACE), SPACE - 1)
