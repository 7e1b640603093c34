"""The answer that a client's connection is receiving: what was parsed and nobody has taken yet. No I/O, no waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.kernel.errors import DownstreamUnavailable, PenstockError
from penstock.wire.http1.answer import (
    AnswerEnd,
    AnswerHead,
    AnswerParser,
    Event,
)


class AnswerInbox:
    """Holds the head, the pieces of the body, the end and the first fault of one answer at a time."""

    __slots__ = ("_chunks", "end", "fault", "head", "held_bytes", "parser")

    def __init__(self) -> None:
        self.parser = AnswerParser()
        self._chunks: deque[bytes] = deque()  # bounded: the connection stops reading at HELD_BYTES_HIGH
        self.forget()

    def forget(self) -> None:
        """Make room for the next answer."""
        self.head: AnswerHead | None = None
        self.end: AnswerEnd | None = None
        self.fault: PenstockError | None = None
        self._chunks.clear()
        self.held_bytes = 0

    def store(self, events: Iterable[Event]) -> None:
        """Keep what the parser found; of several faults the first stands."""
        for event in events:
            if isinstance(event, bytes):
                self._chunks.append(event)
                self.held_bytes += len(event)
            elif isinstance(event, AnswerHead):
                self.head = event
            elif isinstance(event, AnswerEnd):
                self.end = event
            else:
                self.fail(event)

    def fail(self, error: PenstockError) -> None:
        """Say why there will be no answer, unless that was said already."""
        self.fault = self.fault or error

    @property
    def failure(self) -> PenstockError | None:
        """Return why the answer is not whole and never will be, or None."""
        return self.fault or (None if self.end is None or self.end.complete else _cut())

    @property
    def is_early(self) -> bool:
        """Tell whether an answer that is here makes the rest of the request pointless.

        A 2xx that is still coming may depend on the rest, so it stops nothing.
        """
        return self.head is not None and (self.head.status >= 300 or self.end is not None)

    def next_piece(self) -> bytes | None:
        """Return the next piece of the body, nothing at its end, or None when it is still to come.

        Raises the fault of a cut body, but not before its last piece was taken.
        """
        if self._chunks:
            piece = self._chunks.popleft()
            self.held_bytes -= len(piece)
            return piece
        if self.end is not None and self.end.complete:
            return b""
        failure = self.failure
        if failure is not None:
            raise failure
        return None

    def whole(self) -> bytes | None:
        """Return the rest of the body if all of it is here already: the common case, and it costs no wait."""
        if self.end is None or not self.end.complete:
            return None
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.held_bytes = 0
        return body


def _cut() -> DownstreamUnavailable:
    return DownstreamUnavailable("The answer was cut before its end.", status=502)
