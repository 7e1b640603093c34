"""Room on the disk that is held back: when the disk is full, those who settle get it, and a checkpoint always fits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class ReserveSpace(Protocol):
    """What the engine wants of a reserve."""

    def keep(self) -> bool:
        """Hold the room back; False when there is none."""

    def release(self) -> None:
        """Give it to those who settle."""


class ReserveFile:
    """A file of a fixed size beside the messages."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Hold so many bytes: as many as the log may hold, so that all of it fits into the main file."""
        self._path = path
        self._size_bytes = size_bytes

    def keep(self) -> bool:
        """Hold the room back; False when there is none."""
        try:
            if self._path.exists() and self._path.stat().st_size >= self._size_bytes:
                return True
            with self._path.open("wb") as file:
                _allocate(file.fileno(), self._size_bytes)
            return True
        except OSError:
            self.release()
            return False

    def release(self) -> None:
        """Give it to those who settle."""
        self._path.unlink(missing_ok=True)


def _allocate(descriptor: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size_bytes)
        return
    for _ in range(0, size_bytes, 1 << 20):  # macOS has no such call
        os.write(descriptor, bytes(1 << 20))
