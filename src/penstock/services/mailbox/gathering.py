"""Whether a small batch waits a moment for company.

A commit costs the same few switches between threads whether it carries one message or fifty. While there is CPU to
spare that buys the lowest latency. When it gets short, a millisecond of patience lets a commit carry several times as
many; it is spent only as long as messages do come meanwhile: senders that all wait for this very commit send nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

GATHER_S: Final = 0.001
# A batch of so many is worth its commit.
_COMPANY: Final = 16
_WINDOW_S: Final = 0.05
_STRAINED: Final = 0.6
# When waiting did not pay it is tried again after so many commits.
_TRY_EVERY: Final = 64


class Gathering:
    """Asked before every commit."""

    def __init__(self, cpu_s: Callable[[], float]) -> None:
        """Tell the strain from the CPU seconds this process has used."""
        self._cpu_s = cpu_s
        self._window_at = 0.0
        self._used_s = 0.0
        self.strained = False
        self._untried = 0

    def wants(self, waiting: int, now_s: float) -> bool:
        """Tell whether a batch with so many waiting shall be given a moment."""
        if now_s - self._window_at >= _WINDOW_S:
            self._look(now_s)
        if not self.strained or waiting >= _COMPANY:
            return False
        self._untried -= 1
        return self._untried < 0

    def gathered(self, before: int, after: int) -> None:
        """Hear what came of waiting: it paid if at least as many came as there were."""
        self._untried = 0 if after >= 2 * before else _TRY_EVERY

    def _look(self, now_s: float) -> None:
        used_s = self._cpu_s()
        self.strained = used_s - self._used_s > _STRAINED * (now_s - self._window_at)
        self._window_at, self._used_s = now_s, used_s
