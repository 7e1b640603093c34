"""The console for people: rich, but a reader that has left ends nothing by itself."""

from __future__ import annotations

import sys

import rich.console


class Console(rich.console.Console):
    """Leaves it to the command what a closed output means: `| head` is no failure, and a node goes on without one."""

    def on_broken_pipe(self) -> None:
        """Raise it, as any other write does; rich would leave the process with exit code 1."""
        self.quiet = True
        raise sys.exception() or BrokenPipeError
