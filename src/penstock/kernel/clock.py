"""Time as an argument: monotonic for everything inside the process, wall time only for what outlives it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The source of a component's time."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Return Unix seconds; only for modules that store or read wall times."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class LoopClock:
    """The running loop's time, so that a virtual loop moves every deadline with it.

    On a real loop it equals the system clock (both read CLOCK_MONOTONIC); its wall time is the system's
    at the first reading plus the monotonic time since then, so a wall step while running changes nothing.
    """

    __slots__ = ("_wall_at_start", "_wall_offset_s")

    def __init__(self, wall_at_start: float | None = None) -> None:
        """Anchor wall time; the default anchor is the system's wall clock at the first reading."""
        self._wall_at_start = wall_at_start
        self._wall_offset_s: float | None = None

    def monotonic(self) -> float:
        """Return the running loop's time."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return the anchored wall time."""
        now = self.monotonic()
        if self._wall_offset_s is None:
            anchor = time.time() if self._wall_at_start is None else self._wall_at_start
            self._wall_offset_s = anchor - now
        return self._wall_offset_s + now


SYSTEM: Clock = SystemClock()


def uptime() -> float:
    """Return seconds since the machine was booted, its sleep included where the system counts that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def boot_id() -> bytes:
    """Name this boot of the machine in 16 bytes; all zeros where the system does not tell."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        return bytes.fromhex(text.strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return bytes(16)
