"""Which calls go out together, and when: the rules of joining, free of I/O. Pure.

A call that finds nothing under way goes out at once and alone. While a request is in flight, the calls that come
gather. They leave in one request when one of these holds, and a request may be begun at all:

| the gathered calls leave | because |
|---|---|
| nothing is in flight | waiting longer would gain nothing |
| they are as many as those in flight, or fill a request | the node works on one half, the program on the other |
| the first has waited `gather_s` | the request in flight is slow, and a new call must not pay for that |

When many calls leave and nothing is in flight, they leave in two halves, for the same reason. So the calls of a program
settle into two requests that take turns, and the more calls it makes at once, the larger both are. Parts that a slow
request or a timer split off grow together again, because a few calls wait for company while many are in flight. A large
request counts as in flight until its callers have had a turn of the loop: what they call then leaves as the next part.
Without that, two halves which are answered at the same time would leave at the same time for ever, and the node would
stand idle while the program makes both.

At most `in_flight_max` requests are in flight. Two calls with one order key are never in flight in two requests: the
later one stays until the request with the earlier one has ended, and calls with other keys pass it. So calls with one
key leave in the order they came.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

Request = TypeVar("Request")


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinLimits:
    """The bounds of joining; a request with a single call may be of any size."""

    batch_calls_max: int = 256
    batch_bytes_max: int = 700 << 10
    in_flight_max: int = 4
    # So many calls and more are cut into halves when nothing is in flight, and their callers leave again at once.
    halved_min: int = 16
    gather_s: float = 0.005


DEFAULT_LIMITS: Final = JoinLimits()


class GatheredCall(Generic[Request]):
    """One call that may share its request with others."""

    __slots__ = ("key", "request", "since", "size_bytes")

    def __init__(self, request: Request, key: Hashable | None, size_bytes: int, since: float) -> None:
        """`key` orders: calls with one key leave one after the other. None: the order does not matter."""
        self.request = request
        self.key = key
        self.size_bytes = size_bytes
        self.since = since


Call = TypeVar("Call", bound=GatheredCall[Any])


class JoinBatch(Generic[Call]):
    """The calls of one request, in the order they came, and the order keys that are busy until it ends."""

    __slots__ = ("calls", "count", "keys")

    def __init__(self, calls: list[Call], keys: frozenset[Hashable]) -> None:
        self.calls = calls
        self.keys = keys
        # A call that its caller makes itself is not in the list, and counts.
        self.count = len(calls) or 1


class JoinQueue(Generic[Call]):
    """The calls that gather, and the requests in flight. Every method is one step; `take` says what goes out now."""

    def __init__(self, limits: JoinLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        # In the order they came.
        self._gathered: dict[Call, None] = {}
        self._in_flight: dict[JoinBatch[Call], None] = {}
        # How many calls these requests hold together.
        self._calls_in_flight = 0
        # Keys of the calls in flight: each is in one request only.
        self._busy_keys: set[Hashable] = set()

    def __len__(self) -> int:
        """Return how many calls gather."""
        return len(self._gathered)

    @property
    def in_flight(self) -> int:
        """Return how many requests are under way."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Tell whether nothing gathers and nothing is in flight: the next call goes out alone and at once."""
        return not self._gathered and not self._in_flight

    def begin_alone(self, key: Hashable | None) -> JoinBatch[Call]:
        """Note the request of a call that found nothing under way, which its caller makes itself."""
        return self._begin([], frozenset(() if key is None else (key,)))

    def add(self, call: Call) -> None:
        """Let a call gather."""
        self._gathered[call] = None

    def withdraw_all(self) -> list[Call]:
        """Take back every call that has not left."""
        calls = list(self._gathered)
        self._gathered.clear()
        return calls

    def withdraw(self, call: Call) -> bool:
        """Take a call back that has not left; False when it has."""
        if call not in self._gathered:
            return False
        del self._gathered[call]
        return True

    def take(self, now: float) -> JoinBatch[Call] | None:
        """Return the calls of the request that should go out now, which is in flight from here on; or None."""
        if not self._gathered or len(self._in_flight) >= self._limits.in_flight_max:
            return None
        calls, is_full = self._next_calls()
        if not calls or not (is_full or self._may_leave(calls, now)):
            return None
        for call in calls:
            del self._gathered[call]
        return self._begin(calls, frozenset(call.key for call in calls if call.key is not None))

    def _begin(self, calls: list[Call], keys: frozenset[Hashable]) -> JoinBatch[Call]:
        batch = JoinBatch(calls, keys)
        self._in_flight[batch] = None
        self._calls_in_flight += batch.count
        self._busy_keys |= keys
        return batch

    def ended(self, batch: JoinBatch[Call]) -> None:
        """Note that a request is over, whichever way."""
        del self._in_flight[batch]
        self._calls_in_flight -= batch.count
        self._busy_keys -= batch.keys

    def is_large(self, batch: JoinBatch[Call]) -> bool:
        """Tell whether a request holds so many calls that the program and the node should work in turns."""
        return batch.count >= self._limits.halved_min

    def due_at(self) -> float | None:
        """Return when to look again even if nothing happens until then; None: only an event changes anything."""
        if len(self._in_flight) >= self._limits.in_flight_max:
            return None
        first = next((call for call in self._gathered if call.key not in self._busy_keys), None)
        return None if first is None else first.since + self._limits.gather_s

    def _calls_max(self) -> int:
        """Return how many calls the next request may hold."""
        count = len(self._gathered)
        halves = not self._in_flight and count >= self._limits.halved_min
        return min(self._limits.batch_calls_max, (count + 1) // 2 if halves else count)

    def _next_calls(self) -> tuple[list[Call], bool]:
        """Choose the first calls that may leave and fit into one request, and tell whether they fill it."""
        chosen: list[Call] = []
        room_bytes, calls_max = self._limits.batch_bytes_max, self._calls_max()
        for call in self._gathered:
            if call.key in self._busy_keys:
                continue
            room_bytes -= call.size_bytes
            # The first that does not fit ends the request: a smaller one behind it might have the same key.
            if chosen and (room_bytes < 0 or len(chosen) >= calls_max):
                break
            chosen.append(call)
        return chosen, room_bytes < 0 or len(chosen) >= self._limits.batch_calls_max

    def _may_leave(self, calls: list[Call], now: float) -> bool:
        """Tell whether a request with these calls should go out, though more would fit."""
        has_waited = now >= calls[0].since + self._limits.gather_s
        return has_waited or not self._in_flight or len(calls) >= self._calls_in_flight
