"""The console for people, by rich. A reader that has left does not end the process."""

from __future__ import annotations

import io
import sys
from typing import TextIO

import rich.console


class Console(rich.console.Console):
    """A console that raises BrokenPipeError and lets the command decide: `| head` is no failure."""

    def on_broken_pipe(self) -> None:
        """Raise the error, as other writes do. By default rich would exit with code 1."""
        self.quiet = True
        raise sys.exception() or BrokenPipeError


class PageBuffer(io.StringIO):
    """A page in memory that looks to a console like the stream it is for; the stream itself is not written to."""

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
