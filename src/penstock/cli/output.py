"""What a node prints on standard output. A thread writes it, so that a terminal held by Ctrl-S stops no drain."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.kernel import log
from penstock.kernel.log_writer import END_S, WRITER, LogWriter, file_under

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO


class Output:
    """Writes texts in order without waiting for the reader; on the log's terminal the log's thread writes them."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream` by a thread. A stream that is no file cannot block, and is written to directly."""
        self._stream = stream
        file = file_under(stream)
        self._beside_log = file is not None and log.goes_to(file)
        self._writer = WRITER if self._beside_log else LogWriter()
        if file is not None and not self._beside_log:
            self._writer.point_to(file, stream.encoding)
            # Where nobody looked for so long, the newest is enough.
            self._writer.say_lost = lambda _lost: ""
        self._at_once = file is None

    def dress(self, around: Callable[[bytes], bytes]) -> None:
        """Pass every later text for this stream through `around` first."""
        self._writer.dress = around

    def say(self, text: str) -> None:
        """Queue a text. A reader that has left is ignored, so that it cannot disturb a drain."""
        if self._beside_log:
            log.say_beside(text)
        elif not self._at_once:
            self._writer.write(text)
        else:
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()

    def settle(self, seconds: float = END_S) -> bool:
        """Wait until everything is written, before the process ends; returns whether it was in time."""
        return self._writer.close(seconds)
