"""Who listens on a port of this machine, as far as /proc tells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"
_PROC: Final = Path("/proc")


def owner_of(port: int) -> str:
    """Name the process that listens on a port, `python3 (process 4711)`; empty where that cannot be known."""
    inodes = set(_listening(port))
    if not inodes:
        return ""
    for process in _PROC.iterdir():
        if process.name.isdecimal() and _holds(process, inodes):
            with suppress(OSError):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return "a process of another user"


def _listening(port: int) -> list[str]:
    found = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            rows = [line.split() for line in (_PROC / "net" / table).read_text().splitlines()[1:]]
            found += [row[9] for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port]
    return found


def _holds(process: Path, inodes: set[str]) -> bool:
    """Tell whether one of a process's descriptors is one of these sockets."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]") in inodes:
                    return True
    return False
