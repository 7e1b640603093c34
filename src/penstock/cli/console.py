"""The console for people: rich, but a reader that has left ends nothing by itself."""

from __future__ import annotations

import io
import sys
from typing import TextIO

import rich.console


class Console(rich.console.Console):
    """Leaves it to the command what a closed output means: `| head` is no failure, and a node goes on without one."""

    def on_broken_pipe(self) -> None:
        """Raise it, as any other write does; rich would leave the process with exit code 1."""
        self.quiet = True
        raise sys.exception() or BrokenPipeError


class PageBuffer(io.StringIO):
    """A page in memory, which to a console looks like the stream it is for; that stream is not touched meanwhile."""

    def __init__(self, stream: TextIO) -> None:
        """Begin an empty page for a stream, which may be closed."""
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override] # a plain attribute there, which nobody sets
        """Return the stream's: it decides which lines a table can be drawn with."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Tell whether there will be colours."""
        return not self._stream.closed and self._stream.isatty()
