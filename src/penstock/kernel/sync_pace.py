"""Decides where a commit runs: on the loop while syncs are fast, on the thread otherwise. Pure.

Handing a small commit to a thread and back costs more CPU than the commit itself. But whoever syncs on
the loop holds up everybody for as long as the sync takes. So the loop is used while all of the last syncs were fast;
the first slow one sends the following commits to the thread, until as many fast ones in a row were seen there.
"""

from __future__ import annotations

from typing import Final

SLOW_S: Final = 0.002
"""A sync that takes longer is slow."""
FAST_IN_A_ROW: Final = 32
"""So many fast ones are needed before the loop is used, at the start and after a slow one."""


class SyncPace:
    """Counts how many fast syncs came in a row."""

    __slots__ = ("_fast",)

    def __init__(self) -> None:
        """Trust a disk only after it has been measured."""
        self._fast = 0

    @property
    def fast(self) -> bool:
        """Tell whether the next sync may be expected to be fast."""
        return self._fast >= FAST_IN_A_ROW

    def note(self, seconds: float) -> bool:
        """Learn how long a commit took; return whether it was slow."""
        slow = seconds > SLOW_S
        self._fast = 0 if slow else self._fast + 1
        return slow
