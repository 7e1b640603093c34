"""Spans: what a request did, as OpenTelemetry sees it. Nothing is made unless an exporter is installed.

A span belongs to a correlation id. The first span of a request takes its trace from the caller's `traceparent`, or
begins a trace of its own; what follows in this process under the same corr_id is a child of the span that is open. So
the gateway's span is the parent of the service's, and the service's is the parent of the commit, although no argument
carries them: only the corr_id goes along, as it does in every log line.

A message carries the span of its sender in the attribute `traceparent`, so that the span of its delivery, hours later
and in another trace, can link to it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import PenstockError
from penstock.net.promise import Promise

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.net.server.route import Route

OPEN_MAX: Final = 8192
ATTRIBUTE: Final = "traceparent"
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_T = TypeVar("_T")
SpanKind = Literal["server", "internal", "consumer"]
SpanName = tuple[int, int]
"""The numbers of a trace and of one of its spans."""


@dataclass(slots=True)
class RequestSpan:
    """One piece of work; `end` hands it to the exporter."""

    service: str
    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    kind: SpanKind = "internal"
    end_ns: int = 0
    error: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    links: list[SpanName] = field(default_factory=list)

    @property
    def traceparent(self) -> str:
        """Write its name as the header that hands it on."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def read_traceparent(text: str | None) -> SpanName | None:
    """Read a header or an attribute; None where it names no span."""
    match = _TRACEPARENT.fullmatch(text or "")
    if match is None:
        return None
    name = int(match[1], 16), int(match[2], 16)
    return name if all(name) else None


class SpanTracer:
    """The open spans of this process by corr_id. Without a sink every question is answered by None."""

    def __init__(self) -> None:
        self.sink: Callable[[RequestSpan], None] | None = None
        # The innermost open span last; bounded, the oldest is forgotten.
        self._open: dict[str, list[RequestSpan]] = {}

    def begin(self, service: str, name: str, corr_id: str, caller: str | None = None) -> RequestSpan:
        """Open a span under a corr_id."""
        opened = self._open.get(corr_id)
        parent = read_traceparent(caller)
        if opened:
            parent = opened[-1].trace_id, opened[-1].span_id
        trace, above = parent or (_number(16), 0)
        span = RequestSpan(service, name, trace, _number(8), above, now_ns(), "internal" if opened else "server")
        span.attributes["penstock.corr_id"] = corr_id
        if opened is None:
            while len(self._open) >= OPEN_MAX:
                del self._open[next(iter(self._open))]
            opened = self._open[corr_id] = []
        opened.append(span)
        return span

    def end(self, span: RequestSpan, result: object = None) -> None:
        """Close a span and hand it on; an error as its result is told."""
        corr_id = span.attributes["penstock.corr_id"]
        opened = self._open.get(corr_id, [])
        if span in opened:
            opened.remove(span)
        if not opened:
            self._open.pop(corr_id, None)
        if isinstance(result, PenstockError):
            span.error = result.code
        elif isinstance(result, BaseException):
            span.error = type(result).__name__
        self._hand_on(span)

    def current(self, corr_id: str) -> RequestSpan | None:
        """Return the innermost open span of a corr_id."""
        opened = self._open.get(corr_id)
        return opened[-1] if opened else None

    def past(
        self, parent: RequestSpan, name: str, start_ns: int, *links: SpanName, kind: SpanKind = "internal"
    ) -> None:
        """Hand on a span that is over already, as a child of an open one."""
        span = RequestSpan(parent.service, name, parent.trace_id, _number(8), parent.span_id, start_ns, kind)
        span.attributes |= parent.attributes
        span.links += links
        self._hand_on(span)

    def _hand_on(self, span: RequestSpan) -> None:
        span.end_ns = now_ns()
        if self.sink is not None:
            self.sink(span)


def now_ns() -> int:
    """Return Unix nanoseconds: collectors want wall time."""
    return int(SYSTEM.wall() * 1e9)


def _number(size: int) -> int:
    return int.from_bytes(os.urandom(size), "big") or 1


TRACER: Final = SpanTracer()
"""The one of this process; it has a sink only while an exporter runs."""


# --- requests


def traced(route: Route, service: str) -> Callable[..., Any]:
    """Return the route's handler, inside a span if an exporter runs. Asked when a listener compiles its routes."""
    handler, name = route.handler, f"{route.method} {route.path}"
    if TRACER.sink is None:
        return handler

    def handle(request: Request, *rest: object) -> object:
        span = TRACER.begin(service, name, request.corr_id, request.traceparent)
        try:
            result = handler(request, *rest)
        except BaseException as error:
            TRACER.end(span, error)
            raise
        return _ended_with(result, span)

    return handle


def _ended_with(result: Any, span: RequestSpan) -> object:  # noqa: ANN401 - whatever a handler may return
    """End the span when the answer is there, whichever way it comes."""
    if isinstance(result, Promise) and not result.done:
        return TracedPromise(result, span)
    if asyncio.iscoroutine(result):
        return _awaited(result, span)
    if isinstance(result, asyncio.Future):
        result.add_done_callback(lambda _: TRACER.end(span))
        return result
    TRACER.end(span, result)
    return result


async def _awaited(coroutine: Coroutine[Any, Any, object], span: RequestSpan) -> object:
    try:
        result = await coroutine
    except BaseException as error:
        TRACER.end(span, error)
        raise
    TRACER.end(span, result)
    return result


class TracedPromise(Promise):
    """A handler's promise, and the span that ends with it."""

    __slots__ = ("_inner", "_span", "op")

    def __init__(self, inner: Promise, span: RequestSpan) -> None:
        """Follow the promise of the handler."""
        super().__init__()
        self._inner = inner
        self._span = span
        self.op = inner.op
        inner.follow(self._kept)

    def _kept(self, result: object) -> None:
        TRACER.end(self._span, result)
        self.resolve(result)

    def cancel(self) -> None:
        """Give up, and have the work behind it ended."""
        TRACER.end(self._span, TimeoutError())
        self._inner.cancel()
        super().cancel()


def traced_contract(service: str, implementation: _T) -> _T:
    """Return a contract's implementation for others in the same process; each call of it is a span if one exports."""
    return implementation if TRACER.sink is None else cast("_T", TracedContract(service, implementation))


class TracedContract:
    """A service's contract for others in the same process: each call of it is a span."""

    def __init__(self, service: str, implementation: object) -> None:
        """Stand in front of the implementation."""
        self._service = service
        self._implementation = implementation

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the contract has
        found = getattr(self._implementation, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(request: Any, call: Any = None, **more: Any) -> object:  # noqa: ANN401 - as the contract says
            given = () if call is None else (call,)
            span = TRACER.begin(self._service, name, getattr(call, "corr_id", ""), getattr(call, "traceparent", ""))
            return await _awaited(found(request, *given, **more), span)

        return call
