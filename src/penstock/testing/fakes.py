"""Fakes with real contracts: a clock that a test sets, known random numbers, and a scripted downstream."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never, cast

if TYPE_CHECKING:
    from collections.abc import Iterable


class VirtualClock:
    """A kernel clock that moves only when told to; its wall time may jump, its monotonic time may not go back."""

    def __init__(self, monotonic_s: float = 1000.0, wall_s: float = 1_800_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic(self) -> float:
        """Tell the monotonic instant."""
        return self._monotonic_s

    def wall(self) -> float:
        """Tell the Unix time."""
        return self._wall_s

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError("time only moves forward; set_wall makes the wall clock jump")
        self._monotonic_s += seconds
        self._wall_s += seconds

    def set_wall(self, wall_s: float) -> None:
        """Make the wall clock jump, forward or back, as an operator or NTP would."""
        self._wall_s = wall_s


class ScriptedRandom(random.Random):
    """A generator whose draws are known: the given numbers between 0 and 1, over and over.

    Every draw follows the script, also those of whole numbers: `randrange(8)` at 0.5 is 4.
    """

    def __init__(self, *numbers: float) -> None:
        """Draw these numbers in turn."""
        if not numbers or not all(0 <= number < 1 for number in numbers):
            raise ValueError("give at least one number, each from 0 up to but not including 1")
        super().__init__(0)
        self._numbers = deque(numbers)

    def random(self) -> float:
        """Draw the next number of the script."""
        self._numbers.rotate(-1)
        return self._numbers[-1]

    def getrandbits(self, k: int, /) -> int:
        """Draw the next number of the script, as `k` bits."""
        return int(self.random() * (1 << k))

    def _randbelow(self, n: int) -> int:
        # The stock one draws again while a number is too high: a script that repeats itself would never end.
        return int(self.random() * n)


@dataclass(frozen=True, slots=True)
class Expect:
    """Wait until these bytes have come; anything else breaks the script."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ExpectUntil:
    """Wait until these bytes have come, whatever comes before them: the end of a head, say."""

    mark: bytes


@dataclass(frozen=True, slots=True)
class SendBytes:
    """Send these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Send no more, but go on reading."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close in an orderly way."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Cut the connection."""


Step = Expect | ExpectUntil | SendBytes | Pause | HalfClose | Close | Reset


class ScriptBroken(AssertionError):
    """The peer of a scripted downstream did not send what the script expects."""


class ScriptedDownstream(asyncio.Protocol):
    """A downstream that plays a script to whoever connects; on real sockets or in memory.

    After its last step it stays silent and keeps the connection, so a script that ends early is a stalled server.
    """

    def __init__(self, script: Iterable[Step]) -> None:
        """Hold the script; it begins when a connection is made."""
        self.received = bytearray()
        """Everything that came."""
        self.lost = False
        self.transport: asyncio.Transport
        self._steps = deque(script)
        self._read_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def finished(self) -> bool:
        """Tell whether every step was played."""
        return not self._steps

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the script."""
        # A cast: uvloop's transports keep the contract without the class.
        self.transport = cast("asyncio.Transport", transport)
        self._play()

    def data_received(self, data: bytes) -> None:
        """Keep what came, and go on if the script waited for it."""
        self.received += data
        self._play()

    def eof_received(self) -> bool:
        """Keep the other direction open: the script says when to close."""
        return bool(self._steps)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop."""
        self.lost = True
        self._go_on()

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.lost:
            self._play()

    def _play(self) -> None:
        """Play on until a step has to wait."""
        while self._steps and self._timer is None and self._done(self._steps[0]):
            self._steps.popleft()

    def _done(self, step: Step) -> bool:
        """Do one step; tell whether the script goes on behind it now."""
        match step:
            case Expect(data):
                return self._has(data)
            case ExpectUntil(mark):
                return self._has_until(mark)
            case Pause(seconds):
                self._rest(seconds)
                return False
            case SendBytes(data):
                self.transport.write(data)
            case HalfClose():
                self.transport.write_eof()
            case Close():
                self.transport.close()
            case Reset():
                self.transport.abort()
            case _:
                assert_never(step)
        return True

    def _has(self, data: bytes) -> bool:
        came = bytes(self.received[self._read_bytes : self._read_bytes + len(data)])
        if not data.startswith(came):
            raise ScriptBroken(f"expected {data!r}, got {came!r}")
        if came != data:
            return False
        self._read_bytes += len(data)
        return True

    def _has_until(self, mark: bytes) -> bool:
        place = self.received.find(mark, self._read_bytes)
        if place < 0:
            return False
        self._read_bytes = place + len(mark)
        return True

    def _rest(self, seconds: float) -> None:
        self._steps.popleft()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._go_on)
