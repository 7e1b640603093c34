"""Bad signatures at one endpoint: when they are too many, and what is then written to the audit; pure.

Each bad signature is audited until more than `bad_signatures_max` came within a minute. Then the endpoint is under
attack: that is announced once, and further bad signatures are only counted, so that an attacker cannot fill the audit.
The count is written once a minute. Good signatures are accepted all the while. The attack is over when a whole minute
had no more bad signatures than the limit.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, TypeAlias

WINDOW_S: Final = 60.0
BadSignatureNews: TypeAlias = Literal["audit", "attacked", "counted"]


class EndpointAttack:
    """The bad signatures of one endpoint."""

    __slots__ = ("_counted", "_flushed_at", "_limit", "_times", "active")

    def __init__(self, limit: int, now: float) -> None:
        """Allow so many bad signatures a minute."""
        self._limit = limit
        # The newest ones; one more than the limit is enough to know that it is passed.
        self._times: deque[float] = deque(maxlen=limit + 1)
        self._counted = 0
        self._flushed_at = now
        self.active = False

    def bad(self, now: float) -> BadSignatureNews:
        """Take one bad signature: audit it, announce an attack with it, or only count it."""
        self._times.append(now)
        over = self._is_over_limit(now)
        if self.active:
            self._counted += 1
            return "counted"
        if not over:
            return "audit"
        self.active = True
        self._flushed_at = now
        return "attacked"

    def look(self, now: float) -> int:
        """Return how many bad signatures one record has to stand for now; ends an attack that is over."""
        ended = self.active and not self._is_over_limit(now)
        if ended:
            self.active = False
        if not self._counted or not (ended or now - self._flushed_at >= WINDOW_S):
            return 0
        counted, self._counted, self._flushed_at = self._counted, 0, now
        return counted

    def _is_over_limit(self, now: float) -> bool:
        return len(self._times) > self._limit and self._times[0] > now - WINDOW_S
