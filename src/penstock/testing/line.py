"""One direction of an in-memory connection: carries bytes in order, late, in pieces, slowly, or not at all."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

WINDOW_BYTES = 64 * 1024
"""How much a sender may have on the line before its reader takes it: the kernel's socket buffers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """How a line treats the bytes it carries."""

    latency_s: float = 0.0
    """How long a byte travels."""
    window_bytes: int = WINDOW_BYTES
    """How many bytes the line holds until they are read."""
    chunk_bytes: int | None = None
    """Cut what is written into pieces of at most this size; 1 delivers byte by byte."""
    split_at: frozenset[int] = frozenset()
    """Cut at these places of the whole stream."""
    gap_s: float = 0.0
    """How long after one piece the next arrives at the earliest; with `chunk_bytes=1` a slow drip."""
    stall_at_byte: int | None = None
    """Fall silent after this many bytes, until `release`."""
    reset_at_byte: int | None = None
    """Lose the connection after this many bytes."""


CLEAR = Weather()
"""A line that does nothing to its bytes."""


class End(Protocol):
    """What a line asks of the two transports it joins."""

    def arrive(self, data: bytes) -> None:
        """Take the next bytes; they hold their room on the line until `Line.consumed`."""
        ...

    def arrive_eof(self) -> None:
        """Learn that no byte will follow."""
        ...

    def drained(self) -> None:
        """Learn that the line has room again."""
        ...

    def reset(self, error: Exception | None) -> None:
        """Learn that the connection is lost."""
        ...


class Line:
    """Carries bytes from one transport to another; made by `memory_pair`, steered by the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop, weather: Weather) -> None:
        """Begin empty, with no ends attached."""
        self.weather = weather
        self.sent_bytes = 0
        """How many bytes the sender has put on the line."""
        self.arrived_bytes = 0
        """How many of them have reached the far end."""
        self.stalled = False
        self._loop = loop
        self._held_bytes = 0
        self._segments: deque[bytes | None] = (
            deque()
        )  # lint: allow PK003 bounded by the window: `offer` takes no more than its room
        self._due = 0
        self._last_arrival = 0.0
        self._near: End
        self._far: End

    def attach(self, near: End, far: End) -> None:
        """Join the two ends: bytes go to `far`, a lost connection is told to both."""
        self._near, self._far = near, far

    @property
    def room_bytes(self) -> int:
        """Tell how many bytes the line would take now."""
        return max(0, self.weather.window_bytes - self._held_bytes)

    def offer(self, data: bytes) -> int:
        """Put bytes on the line, as many as there is room for; tell how many."""
        taken = data[: self.room_bytes]
        for piece in self._pieces(taken):
            self._depart(piece)
        self._held_bytes += len(taken)
        return len(taken)

    def offer_eof(self) -> None:
        """Put the end of the stream behind what is on the line."""
        self._depart(None)

    def consumed(self, count: int) -> None:
        """Give back the room of bytes that were read."""
        self._held_bytes -= count
        self._near.drained()

    def refuse(self) -> None:
        """Answer bytes that nobody will read: their sender is reset."""
        self._loop.call_later(self.weather.latency_s, self._near.reset, ConnectionResetError("reset by peer"))

    def stall(self) -> None:
        """Deliver nothing until `release`; what is sent meanwhile waits."""
        self.stalled = True

    def release(self) -> None:
        """Go on after a stall, wherever it came from."""
        self.stalled = False
        self._loop.call_soon(self._deliver)

    def lose(self) -> None:
        """Lose the connection now: both ends learn of it by a reset, and what is on the line is gone."""
        self._segments.clear()
        for end in (self._near, self._far):
            end.reset(ConnectionResetError("connection lost on the line"))

    def drop(self) -> None:
        """Forget what is on the line: its reader is gone."""
        self._segments.clear()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """Cut where the weather says; a stall and a loss happen exactly at their byte, so they cut as well."""
        size = len(data)
        marks = [*self.weather.split_at, self.weather.stall_at_byte, self.weather.reset_at_byte]
        places = {mark - self.sent_bytes for mark in marks if mark is not None}
        cuts = sorted({*range(0, size, self.weather.chunk_bytes or size or 1), *places, size})
        inside = [cut for cut in cuts if 0 <= cut <= size]
        return (data[start:stop] for start, stop in pairwise(inside))

    def _depart(self, piece: bytes | None) -> None:
        now = self._loop.time()
        at = max(now + self.weather.latency_s, self._last_arrival + self.weather.gap_s)
        self._last_arrival = at
        self._segments.append(piece)
        self.sent_bytes += len(piece or b"")
        if at <= now:
            self._loop.call_soon(self._on_arrival)
        else:
            self._loop.call_at(at, self._on_arrival)

    def _on_arrival(self) -> None:
        # An arrival is a right to deliver the oldest piece, whichever it is: nothing overtakes on a line.
        self._due += 1
        self._deliver()

    def _deliver(self) -> None:
        while self._due and self._segments and not self._blocked():
            self._due -= 1
            self._hand_over(self._segments.popleft())

    def _blocked(self) -> bool:
        if self.arrived_bytes == self.weather.stall_at_byte:
            self.weather = replace(self.weather, stall_at_byte=None)  # it strikes once
            self.stalled = True
        return self.stalled

    def _hand_over(self, piece: bytes | None) -> None:
        if piece is None:
            self._far.arrive_eof()
        elif self.arrived_bytes == self.weather.reset_at_byte:
            self.lose()
        else:
            self.arrived_bytes += len(piece)
            self._far.arrive(piece)
