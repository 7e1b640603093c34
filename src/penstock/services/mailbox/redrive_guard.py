"""Keeps a redrive and the retention from moving the same dead letter, which both may have read. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class RedriveGuard:
    """Whoever wants to move dead letters takes them here first."""

    __slots__ = ("_ended", "_leaving")

    def __init__(self) -> None:
        self._leaving: set[int] = set()
        self._ended = 0

    def mark(self) -> int:
        """Return a mark to be handed to `take`; call this before reading dead letters."""
        return self._ended

    def take(self, seqs: Iterable[int], mark: int) -> set[int]:
        """Return those of the read dead letters that the caller may move. None if any were moved since the mark."""
        taken = set() if self._ended != mark else set(seqs) - self._leaving
        self._leaving |= taken
        return taken

    def ended(self, taken: set[int]) -> None:
        """Release dead letters that were taken, whether they were moved or not."""
        self._leaving -= taken
        self._ended += bool(taken)
