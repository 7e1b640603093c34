"""Ends a node whose data directory was moved or removed under it, before it writes to the wrong place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.child import Child

# How long a node may go on by a path that leads elsewhere.
_LOOK_S: Final = 0.5

_log = Log("node")


class DataDirGuard:
    """Looks twice a second whether the data directory is where it was.

    Nothing is drained when it is not: a drain writes too. Whatever was answered for is on the disk, as after a kill.
    """

    def __init__(self) -> None:
        # Tells what became of the directory; empty while it is there. A node that keeps no file has none to look at.
        self.astray: Callable[[], str] = str
        # Ends the process; what it is told is for the person who started it.
        self.end: Callable[[str], None] | None = None

    async def run(self, child: Child) -> None:
        """Look until the node drains."""
        while not await child.shutdown.sleep(_LOOK_S):
            said = self.astray()
            if said and self.end is not None:
                _log.error("data_dir.astray", reason=said)
                self.end(said)
