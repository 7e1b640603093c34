"""How a command that follows a stream ends: by Ctrl-C, by SIGTERM, or when nobody reads its output any more."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StoppableBlock:
    """A block that Ctrl-C ends quietly: its wait ends at once, its clean-up runs, and a second Ctrl-C ends that too."""

    def __init__(self) -> None:
        """Signals are handled only inside the block."""
        self.asked = False
        self._busy = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._pipe = _output_pipe()

    def __enter__(self) -> Self:
        """Handle the signals, and watch for a reader that leaves."""
        for each in _SIGNALS:
            self._loop.add_signal_handler(each, self._ask)
        if self._pipe is not None:
            # The end we write to becomes readable, in error, when the other is closed: no message need come for that.
            self._loop.add_reader(self._pipe, self._ask)
        return self

    @contextmanager
    def later(self) -> Iterator[None]:
        """Finish what is in this block before ending."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self.asked:
            raise asyncio.CancelledError

    def _ask(self) -> None:
        self._leave_pipe()
        if (not self._busy or self.asked) and self._task is not None:
            self._task.cancel()
        self.asked = True

    def _leave_pipe(self) -> None:
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe)

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        """Restore the signals. Being told to end is not a failure."""
        for each in _SIGNALS:
            self._loop.remove_signal_handler(each)
        self._leave_pipe()
        return self.asked and kind is asyncio.CancelledError


def _output_pipe() -> int | None:
    """Return the descriptor of standard output if it is a pipe with a reader."""
    with suppress(OSError, ValueError):
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            return sys.stdout.fileno()
    return None
