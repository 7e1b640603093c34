"""Makes one answer of several downstream calls, which run at once, each under its deadline; identical ones are shared.

A required part that fails ends the view, and the others are let go; an optional one is replaced by its fallback and
named in the warnings. Nothing is kept but a small, bounded memory of last good values for `fallback = "stale"`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import (
    DownstreamUnavailable,
    Expired,
    Forbidden,
    PenstockError,
    RateLimited,
    Timeout,
    Unauthenticated,
    forget_where,
)
from penstock.services.omnigate.own.fair_slots import CALLER
from penstock.services.omnigate.own.views import (
    VIEW_BYTES_MAX,
    PartOut,
    PartWarning,
    ViewOut,
)

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.kernel.clock import Clock
    from penstock.kernel.scope import Scope
    from penstock.services.omnigate.own.views import PartSpec, ViewSpec

# The answer has to leave before the client stops waiting: part of its budget, but never much.
RESERVE_SHARE: Final = 0.025
RESERVE_S_MAX: Final = 0.05
STALE_BYTES_MAX: Final = 8 << 20
STALE_AGE_S_MAX: Final = 300.0
FLIGHTS_MAX: Final = 4096

# Brings one part's JSON: the filled target, who asks, and how long it may take.
Source = Callable[[str, "Call", float], Awaitable[bytes]]
# What a holder may not see is his to know; anything else of a required part is the gateway's failure.
_TOLD_AS_IT_IS: Final = (Unauthenticated, Expired, Forbidden, RateLimited)


class SharedCall:
    """One call that several views may be waiting for; it ends when the last of them leaves."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[bytes]) -> None:
        self.task = task
        self.waiting = 0


class LastGood:
    """The last good value of each part that may be served stale, bounded in bytes and age."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._kept: OrderedDict[tuple[str, ...], tuple[float, bytes]] = OrderedDict()
        self.held_bytes = 0

    def keep(self, key: tuple[str, ...], value: bytes) -> None:
        """Remember a value; the least recently used ones make room."""
        old = self._kept.pop(key, None)
        self.held_bytes += len(value) - (0 if old is None else len(old[1]))
        self._kept[key] = self._monotonic(), value
        while self.held_bytes > STALE_BYTES_MAX:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.held_bytes -= len(dropped)

    def find(self, key: tuple[str, ...]) -> bytes | None:
        """Return a value that is not too old."""
        found = self._kept.get(key)
        if found is None or self._monotonic() - found[0] > STALE_AGE_S_MAX:
            return None
        self._kept.move_to_end(key)
        return found[1]


class Hydrator:
    """Renders views. `scope` is where its calls run: bounded, and ended with the service."""

    def __init__(self, sources: Mapping[str, Source], scope: Callable[[], Scope], clock: Clock) -> None:
        """Take the sources of the parts."""
        self._sources = sources
        self._scope = scope
        self._monotonic = clock.monotonic
        self._flights: dict[tuple[str, ...], SharedCall] = {}
        self.last_good = LastGood(clock)
        # How many fetches were saved because an identical one was on its way.
        self.shared = 0

    async def render(self, view: ViewSpec, params: Mapping[str, str], call: Call, budget_s: float) -> bytes:
        """Return the view's answer; a required part that fails is raised under its own name."""
        limit_s = budget_s - min(RESERVE_S_MAX, budget_s * RESERVE_SHARE)
        scope = self._scope()
        running: dict[asyncio.Task[PartOut | PenstockError], PartSpec] = {}
        try:
            for part in view.parts:
                running[_start(scope, self._part(part, params, call, limit_s))] = part
            found = await self._collect(running)
        finally:
            for task in running:
                task.cancel()
        warnings = tuple(PartWarning(name, out.reason) for name, out in found.items() if out.reason)
        ordered = {part.name: found[part.name] for part in view.parts}
        answer = msgspec.json.encode(ViewOut(view.name, ordered, warnings))
        if len(answer) > VIEW_BYTES_MAX:
            raise DownstreamUnavailable("The view is larger than it may be.", status=502, limit="view_bytes")
        return answer

    async def _collect(self, running: Mapping[asyncio.Task[PartOut | PenstockError], PartSpec]) -> dict[str, PartOut]:
        found: dict[str, PartOut] = {}
        left = set(running)
        while left:
            # Every part is bounded by its own timeout and the view's.
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                part, out = running[task], task.result()
                if isinstance(out, PenstockError):
                    raise _named(part, out)
                found[part.name] = out
        return found

    async def _part(
        self, part: PartSpec, params: Mapping[str, str], call: Call, limit_s: float
    ) -> PartOut | PenstockError:
        """Fetch one part, or its fallback. The failure of a required part is returned as an error."""
        began = self._monotonic()
        target = part.fill(params)
        budget_s = min(part.timeout_s, limit_s)
        key = _identity(part, target, call)
        try:
            async with timeout(f"part:{part.name}", budget_s):
                value = await self._shared(key, part, target, call)
        except PenstockError as error:
            forget_where(error)
            return error if part.required else self._stand_in(part, key, error, self._since_ms(began))
        if part.fallback == "stale":
            self.last_good.keep(key, value)
        return PartOut("ok", self._since_ms(began), value=msgspec.Raw(value))

    def _stand_in(self, part: PartSpec, key: tuple[str, ...], error: PenstockError, latency_ms: float) -> PartOut:
        if part.fallback == "default":
            return PartOut("default", latency_ms, error.code, msgspec.Raw(part.default))
        stale = self.last_good.find(key) if part.fallback == "stale" else None
        if stale is not None:
            return PartOut("stale", latency_ms, error.code, msgspec.Raw(stale))
        return PartOut("omitted", latency_ms, error.code)

    def _since_ms(self, began: float) -> float:
        return round((self._monotonic() - began) * 1000, 3)

    # --- identical fetches ---------------------------------------------------------------------------------

    async def _shared(self, key: tuple[str, ...], part: PartSpec, target: str, call: Call) -> bytes:
        """Join an identical fetch that is under way, or begin one. The last one to leave ends it."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._take_off(key, part, target, call)
        else:
            self.shared += 1
        flight.waiting += 1
        try:
            # The wait is the caller's, under its own timeout; the shield keeps it from cutting the others' call.
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._land(key, flight)
                flight.task.cancel()

    def _take_off(self, key: tuple[str, ...], part: PartSpec, target: str, call: Call) -> SharedCall:
        fetch = self._sources[part.source]

        async def fly() -> bytes:
            try:
                async with timeout(f"part:{part.name}", part.timeout_s):
                    return _checked(await fetch(target, call, part.timeout_s))
            finally:
                self._land(key, flight)

        # Under a fresh context: the first caller's deadline is not the others'. Its turn in a downstream's line is.
        context = Context()
        context.run(CALLER.set, CALLER.get())
        flight = SharedCall(context.run(_start, self._scope(), fly()))
        if len(self._flights) < FLIGHTS_MAX:
            self._flights[key] = flight
        return flight

    def _land(self, key: tuple[str, ...], flight: SharedCall) -> None:
        """Forget a fetch that is over. One that was given up may end after the next of its kind has begun."""
        if self._flights.get(key) is flight:
            del self._flights[key]


def _start(scope: Scope, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return scope.start(work)


def _identity(part: PartSpec, target: str, call: Call) -> tuple[str, ...]:
    """Return what makes two fetches the same. A service's answer depends on who asks; a plain upstream's does not."""
    if part.source == "http":
        return part.source, target
    return part.source, target, call.capability


def _checked(value: bytes) -> bytes:
    """Refuse a value that is not one complete JSON value."""
    if len(value) > VIEW_BYTES_MAX:
        raise DownstreamUnavailable("The part is larger than a view may be.", status=502, limit="view_bytes")
    try:
        msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise DownstreamUnavailable("The part is not JSON.", status=502, reason="not_json") from exc
    return value


def _named(part: PartSpec, error: PenstockError) -> PenstockError:
    """Return the error that names a failed required part: 504 if it was late, 502 if it was wrong."""
    if isinstance(error, Timeout):
        return Timeout(f"part:{part.name}", budget_s=error.budget_s, part=part.name)
    if isinstance(error, _TOLD_AS_IT_IS):
        # A copy: the same error may be on its way to other views.
        told = type(error)(error.detail, status=error.status)
        told.facts.update(error.facts, part=part.name)
        return told
    detail = f"The required part {part.name} could not be had."
    return DownstreamUnavailable(detail, status=502, part=part.name, reason=error.code)
