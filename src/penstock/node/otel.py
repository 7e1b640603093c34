"""Sends spans to an OpenTelemetry collector: the `otel` extra, and `OTEL_EXPORTER_OTLP_ENDPOINT` in the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.kernel.log import Log
from penstock.net.tracing import TRACER

if TYPE_CHECKING:
    from penstock.net.tracing import RequestSpan

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_MS: Final = 2000
_log: Final = Log("node")


def start_exporting() -> Callable[[], None]:
    """Install an exporter if the environment names a collector; returns what ends it.

    The exporter has a thread and a bounded queue of its own: a collector that is slow or gone costs spans, which it
    logs, and never delays a request.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return _nothing
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        _log.warning("otel.missing", why="spans are wanted, but the extra is not installed: pip install penstock[otel]")
        return _nothing
    processor = BatchSpanProcessor(OTLPSpanExporter())
    written = SpanWriter()
    TRACER.sink = lambda span: processor.on_end(written.as_otel(span))

    def end() -> None:
        TRACER.sink = None
        processor.force_flush(_FLUSH_MS)
        processor.shutdown()  # type: ignore[no-untyped-call]  # of the extra

    return end


def _nothing() -> None:
    """End nothing."""


class SpanWriter:
    """Writes our spans as those of the SDK; each service of the node is a resource of its own."""

    def __init__(self) -> None:
        self._resources: dict[str, Any] = {}

    def as_otel(self, span: RequestSpan) -> Any:  # noqa: ANN401 - a type of the extra
        """Return the span as the SDK's exporter takes it."""
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode  # noqa: PLC0415

        kinds = {"server": SpanKind.SERVER, "internal": SpanKind.INTERNAL, "consumer": SpanKind.CONSUMER}
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource(span.service),
            attributes=span.attributes,
            links=[Link(_context(*link)) for link in span.links],
            kind=kinds[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
        )

    def _resource(self, service: str) -> Any:  # noqa: ANN401 - a type of the extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

        found = self._resources.get(service)
        if found is None:
            said = {"service.name": service, "service.namespace": "penstock", "service.version": __version__}
            found = self._resources[service] = Resource.create(said)
        return found


def _context(trace_id: int, span_id: int) -> Any:  # noqa: ANN401 - a type of the extra
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
