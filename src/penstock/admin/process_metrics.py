"""What the process uses, under the names that Prometheus' own clients give it."""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/self/stat")
_BOOT: Final = Path("/proc/stat")
_FILES: Final = Path("/proc/self/fd")


def process_page() -> str:
    """Write the lines about the process; empty where the system does not tell, as on macOS."""
    try:
        # The name of the program, in parentheses, may hold anything; what is counted begins behind it.
        fields = _STAT.read_text().rpartition(")")[2].split()
        files = sum(1 for _ in _FILES.iterdir())
        booted_at = _booted_at()
    except OSError:
        return ""
    ticks_s, page_bytes = os.sysconf("SC_CLK_TCK"), resource.getpagesize()
    return "".join(
        (
            _lines("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", float(fields[20])),
            _lines("resident_memory_bytes", "gauge", "Resident memory in bytes.", float(fields[21]) * page_bytes),
            _lines("start_time_seconds", "gauge", "When the process started.", booted_at + float(fields[19]) / ticks_s),
            _lines(
                "cpu_seconds_total", "counter", "CPU time spent.", (float(fields[11]) + float(fields[12])) / ticks_s
            ),
            _lines("open_fds", "gauge", "Open file descriptors.", float(files)),
            _lines(
                "max_fds",
                "gauge",
                "How many file descriptors may be open.",
                float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            ),
        )
    )


@cache
def _booted_at() -> float:
    """Return when the machine was started, in seconds since 1970."""
    lines = _BOOT.read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("btime "))


def _lines(name: str, kind: str, told: str, value: float) -> str:
    name = f"process_{name}"
    return f"# HELP {name} {told}\n# TYPE {name} {kind}\n{name} {value!r}\n"
