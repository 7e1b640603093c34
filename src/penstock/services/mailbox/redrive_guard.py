"""Dead letters on their way out: a redrive and the retention may read the same one, and only one of them moves it. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class RedriveGuard:
    """Who moves dead letters asks here first, with what he read."""

    __slots__ = ("_ended", "_leaving")

    def __init__(self) -> None:
        """Start with all of them at rest."""
        self._leaving: set[int] = set()
        self._ended = 0

    def mark(self) -> int:
        """Name this moment; taken before the dead letters are read."""
        return self._ended

    def take(self, seqs: Iterable[int], mark: int) -> set[int]:
        """Return those that may be moved now. None, if others left since the mark: what was read may be gone."""
        taken = set() if self._ended != mark else set(seqs) - self._leaving
        self._leaving |= taken
        return taken

    def ended(self, taken: set[int]) -> None:
        """Note that these were moved, or were not and stay."""
        self._leaving -= taken
        self._ended += bool(taken)
