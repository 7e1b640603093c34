"""What this node remembers of the peers it asked: round-trip times, failures, breakers. Pure.

A peer's round-trip time is estimated as TCP does it (SRTT and RTTVAR). A probe is slow when it is older than the peer's
own estimate allows; for a peer that never answered, the node's other round trips are the guess. A peer that timed out
is *failing* until it answers again: it is left out of FIND answers. Five failures in a row open its breaker.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.kernel.breaker import Breaker, BreakerPolicy, BreakerState

SAMPLES_MIN: Final = 8
SAMPLES_MAX: Final = 128
_SAMPLES_A_JUDGEMENT: Final = 16
GUESS_S: Final = 0.020
SLOW_S_MIN: Final = 0.005
_BREAKER: Final = BreakerPolicy(error_rate=0.0, timeouts_in_a_row=5, open_s=5.0, probes=1)


class Basis(enum.Enum):
    """What a slow point was made from."""

    OWN = "own"  # the peer's own round trips
    GUESS = "guess"  # the node's round trips with others
    PATIENT = "patient"  # the peer's own estimate is beyond the longest wait: extra probes start, its slot stays


class SlowPoint(NamedTuple):
    """After how long a probe counts as slow, and why."""

    after_s: float
    basis: Basis
    usual_s: float = float("inf")  # most answers have come by then


@dataclass(slots=True)
class _Memory:
    srtt_s: float | None = None
    rttvar_s: float = 0.0
    breaker: Breaker | None = None

    def sample(self, rtt_s: float) -> None:
        if self.srtt_s is None:
            self.srtt_s, self.rttvar_s = rtt_s, rtt_s / 2
        else:
            self.rttvar_s += (abs(self.srtt_s - rtt_s) - self.rttvar_s) / 4
            self.srtt_s += (rtt_s - self.srtt_s) / 8


class PeerBook:
    """The memory of one node; bounded, the peer unheard of for longest is forgotten first."""

    def __init__(self, *, hedge_after_s: float = 0.25, peers_max: int = 4096) -> None:
        self.failing: set[int] = set()
        self.answered_at = float("-inf")  # when anybody last answered
        self._hedge_after_s = hedge_after_s
        self._peers_max = peers_max
        self._peers: dict[int, _Memory] = {}
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._p95_s: float | None = None
        self._fresh = 0  # samples since the 95th percentile was last worked out

    def __len__(self) -> int:
        """Return how many peers are remembered."""
        return len(self._peers)

    def answered(self, peer: int, rtt_s: float, now: float) -> None:
        """Note an answer and how long it took."""
        memory = self._memory(peer)
        memory.sample(rtt_s)
        if memory.breaker is not None:
            memory.breaker.success(now, rtt_s)
            if memory.breaker.state is BreakerState.CLOSED:
                memory.breaker = None
        self.failing.discard(peer)
        self.answered_at = now
        self.sample(rtt_s)

    def sample(self, rtt_s: float) -> None:
        """Count a round trip that belongs to the node's guess alone: a HELLO."""
        self._samples.append(rtt_s)
        self._fresh += 1
        if self._fresh >= _SAMPLES_A_JUDGEMENT or len(self._samples) <= SAMPLES_MIN:
            self._p95_s = None

    def failed(self, peer: int, now: float, *, elapsed_s: float = 0.0) -> None:
        """Note that a peer did not answer in time, or could not be reached."""
        memory = self._memory(peer)
        if memory.breaker is None:
            memory.breaker = Breaker("peer", _BREAKER)
        memory.breaker.failure(now, timed_out=True, elapsed_s=elapsed_s)
        self.failing.add(peer)

    def may_ask(self, peer: int, now: float) -> bool:
        """Tell whether the peer's breaker lets a request out; a yes may be one of its few probes."""
        memory = self._peers.get(peer)
        return memory is None or memory.breaker is None or memory.breaker.allow(now)

    def forgo(self, peer: int) -> None:
        """Give back a probe that was allowed but had no outcome."""
        memory = self._peers.get(peer)
        if memory is not None and memory.breaker is not None:
            memory.breaker.abandon()

    def _memory(self, peer: int) -> _Memory:
        memory = self._peers.pop(peer, None)
        if memory is None:
            memory = _Memory()
            if len(self._peers) >= self._peers_max:
                oldest = next(iter(self._peers))
                del self._peers[oldest]
                self.failing.discard(oldest)
        self._peers[peer] = memory
        return memory

    def srtt_s(self, peer: int) -> float | None:
        """Return the smoothed round-trip time, if the peer ever answered."""
        memory = self._peers.get(peer)
        return None if memory is None else memory.srtt_s

    def slow_point(self, peer: int, *, connecting: bool = False) -> SlowPoint:
        """Say after how long a probe of this peer is slow; connecting doubles it, because it takes two round trips."""
        memory = self._peers.get(peer)
        if memory is None or memory.srtt_s is None:
            after, basis = self.guess_s(), Basis.GUESS
            usual = after / 2
        else:
            after, basis = memory.srtt_s + 4 * memory.rttvar_s, Basis.OWN
            usual = memory.srtt_s + memory.rttvar_s
        after = max(after, SLOW_S_MIN)
        if connecting:
            after *= 2
            usual *= 2
        if after <= self._hedge_after_s:
            return SlowPoint(after, basis, usual)
        return SlowPoint(self._hedge_after_s, Basis.PATIENT if basis is Basis.OWN else basis, usual)

    @property
    def near_enough(self) -> int:
        """Prefer nobody to the nearest."""
        return 1

    def connected(self, peer: int) -> bool:
        """Know of no connections: whoever owns them says so instead."""
        return False

    def guess_s(self) -> float:
        """Return twice the 95th percentile of this node's round trips; 20 ms while there are fewer than eight."""
        if len(self._samples) < SAMPLES_MIN:
            return GUESS_S
        if self._p95_s is None:
            ordered = sorted(self._samples)
            self._p95_s = ordered[int(0.95 * (len(ordered) - 1))]
            self._fresh = 0
        return 2 * self._p95_s
