"""How fast waiting requests get their turn. It is measured while some wait and forgotten when none does. Pure."""

from __future__ import annotations

from typing import Final

_WEIGHT: Final = 0.3
_WINDOW_S: Final = 0.1
_KEPT_S: Final = 5.0


class TurnRate:
    """Turns a second, as an average over windows in which somebody waited from beginning to end."""

    __slots__ = ("_at", "_backlogged", "_counted", "_known_at", "per_s", "turns")

    def __init__(self) -> None:
        self.turns = 0
        """Turns given so far; the queue counts them."""
        self.per_s = 0.0
        """The average; 0 while nothing is known."""
        self._counted = 0
        self._at = 0.0
        self._known_at = 0.0
        self._backlogged = False

    def tick(self, now: float, *, backlogged: bool) -> None:
        """End a window. It counts only if requests waited at its beginning and at its end."""
        elapsed_s = now - self._at
        if elapsed_s < _WINDOW_S:
            return
        if self._backlogged and backlogged:
            rate = (self.turns - self._counted) / elapsed_s
            self.per_s = rate if not self.per_s else self.per_s + _WEIGHT * (rate - self.per_s)
            self._known_at = now
        elif now - self._known_at > _KEPT_S:
            self.per_s = 0.0
        self._at, self._counted, self._backlogged = now, self.turns, backlogged

    def wait_s(self, turns: float) -> float:
        """Return how long so many turns take; 0 if that is not known, so that nobody is refused by a guess."""
        return turns / self.per_s if self.per_s else 0.0
