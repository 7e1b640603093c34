"""Routes compiled for the hot path: decoder, limits and counters looked up once, not once a request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.kernel.errors import Malformed, NotReady
from penstock.net.tracing import traced
from penstock.wire.plain_words import fault_facts, plain_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.kernel.metrics import Counter, Metrics
    from penstock.net.message import Request
    from penstock.net.server.route import Route

UNMATCHED: Final = "unmatched"
NOT_READY_HELP: Final = "Requests refused because somebody needed was not ready, by phase."


class Endpoint:
    """One route with everything its requests need."""

    __slots__ = (
        "_body", "_body_too", "_counts", "_metrics", "_own_bytes_max", "_own_deadline_max_s", "_own_deadline_s",
        "_refusals", "body_bytes_max", "decode", "handler", "latency", "ok", "path", "raw_body", "reread",
        "stream_body", "timeout_max_s", "timeout_s", "whole_bytes_max",
    )  # fmt: skip

    def __init__(self, route: Route | None, metrics: Metrics, *, body_bytes_max: int, timeout_s: float) -> None:
        """Compile a route; None stands for requests that found none."""
        self.path = UNMATCHED if route is None else route.path
        self.handler: Callable[..., Any] = _no_route if route is None else traced(route, metrics.service)
        # None where the route takes no body. The decoder is made for the first body: a node has hundreds of routes.
        self.decode: Callable[[bytes], Any] | None = None
        self._body = None if route is None else route.body
        self._body_too = None if route is None else route.body_too
        if route is not None and route.body is not None:
            _check_strict(route.body)
            self.decode = partial(self._decode_first, route.body)
        self.reread = None if route is None else route.reread
        self.stream_body = route is not None and route.stream_body
        self.raw_body = route is not None and route.raw_body
        self._own_bytes_max = None if route is None else route.body_bytes_max
        self._own_deadline_s = None if route is None else route.deadline_s
        self._own_deadline_max_s = None if route is None else route.deadline_max_s
        self.limit(body_bytes_max=body_bytes_max, timeout_s=timeout_s)
        self._metrics = metrics
        self._counts: dict[tuple[str, int], Counter] = {}
        self._refusals: dict[tuple[str, tuple[int, str, str | None]], list[Counter]] = {}
        # Routes that share an operation (an alias, a path with an id) are told apart by `route` and added up by `op`.
        op = "" if route is None else route.op
        self.latency = metrics.histogram(
            "request_latency_seconds", "From end of headers to answer.", route=self.path, op=op
        )
        self.ok = self._counter("GET" if route is None else route.method, 200)

    def limit(self, *, body_bytes_max: int, timeout_s: float) -> None:
        """Take the listener's limits, except where the route has its own."""
        self.body_bytes_max = body_bytes_max if self._own_bytes_max is None else self._own_bytes_max
        # A body up to this size that has arrived whole is handed over as it is, also to a handler that takes streams.
        self.whole_bytes_max = self.body_bytes_max
        self.timeout_s = timeout_s if self._own_deadline_s is None else self._own_deadline_s
        # The longest deadline that a client may ask for.
        self.timeout_max_s = self._own_deadline_max_s or self.timeout_s

    def _decode_first(self, kind: Any, body: bytes) -> Any:  # noqa: ANN401 - typed by the route
        check_strict_within(kind)
        self.decode = msgspec.json.Decoder(kind).decode
        return self.decode(body)

    def read_again(self, body: bytes, fault: Exception) -> Any:  # noqa: ANN401 - typed by the route
        """Read a body that did not decode in the route's second way, if it has one; else say what is wrong with it."""
        if self.reread is not None:
            try:
                return self.reread(body)
            except (msgspec.ValidationError, UnicodeDecodeError):
                pass
            except msgspec.DecodeError as exc:
                # No JSON at all, which the first reader need not have noticed: it stops at a field it does not know.
                fault = exc
        said = str(fault)
        raise Malformed(plain_fault(said, self._body, self._body_too), **fault_facts(said)) from fault

    def count(self, method: str, status: int) -> None:
        """Count an answer."""
        counter = self._counts.get((method, status)) or self._counter(method, status)
        counter.value += 1

    def count_refusal(self, method: str, labels: tuple[int, str, str | None]) -> None:
        """Count a refusal by (status, reason, full queue or phase); the queue itself has counted its drop."""
        for counter in self.refusal_counters(method, labels):
            counter.value += 1

    def refusal_counters(self, method: str, labels: tuple[int, str, str | None]) -> list[Counter]:
        """Return the counters of a refusal with these labels."""
        found = self._refusals.get((method, labels))
        if found is not None:
            return found
        status, reason, which = labels
        counters = [
            self._counter(method, status),
            self._metrics.counter("rejected_total", "Requests refused, by reason.", reason=reason),
        ]
        if reason == NotReady.code and which is not None:
            counters.append(self._metrics.counter("not_ready_total", NOT_READY_HELP, phase=which))
        elif which is not None:
            help_text = "Work refused because a bounded place was full."
            counters.append(self._metrics.counter("busy_rejections_total", help_text, endpoint=self.path, queue=which))
        self._refusals[method, labels] = counters
        return counters

    def _counter(self, method: str, status: int) -> Counter:
        counter = self._metrics.counter(
            "http_requests_total", "Answered requests.", route=self.path, method=method, status=str(status)
        )
        self._counts[method, status] = counter
        return counter


def _no_route(request: Request) -> None:
    """Take the place of a handler; never called, because a request without a route is answered before."""
    raise RuntimeError(f"{request.method} {request.path} has no route")


def _check_strict(kind: Any) -> None:  # noqa: ANN401 - any type that msgspec reads
    """Demand `forbid_unknown_fields` of a body: a misspelt field must never be dropped in silence."""
    config = getattr(kind, "__struct_config__", None)
    if config is not None and not config.forbid_unknown_fields:
        raise _too_loose(kind)


def check_strict_within(kind: Any) -> None:  # noqa: ANN401 - any type that msgspec reads
    """Demand the same of everything inside it; this resolves the types of all fields, which takes a millisecond."""
    for info in _structs(msgspec.inspect.type_info(kind), set()):
        if not info.forbid_unknown_fields:
            raise _too_loose(info.cls)


def _too_loose(kind: type) -> ValueError:
    return ValueError(f"{kind.__name__} must forbid unknown fields to be a request body")


def _structs(info: msgspec.inspect.Type, seen: set[type]) -> Iterator[msgspec.inspect.StructType]:
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in seen:
            return
        seen.add(info.cls)
        yield info
        for field in info.fields:
            yield from _structs(field.type, seen)
    for name in ("item_type", "key_type", "value_type"):
        inner = getattr(info, name, None)
        if isinstance(inner, msgspec.inspect.Type):
            yield from _structs(inner, seen)
    inner_types = getattr(info, "types", None) or getattr(info, "item_types", None) or ()
    for inner in inner_types:
        yield from _structs(inner, seen)
