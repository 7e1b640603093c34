"""Spans arrive at a real OTLP receiver: gateway, service, commit; and a delivery links to the span of its sender."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.net.tracing import OPEN_MAX, RequestSpan, SpanTracer, read_traceparent
from tests.acceptance.node_process import NodeProcess

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_ARRIVES_S = 30.0


class Receiver(ThreadingHTTPServer):
    """Takes OTLP over HTTP and keeps the spans, each with the name of its service."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[tuple[str, Any]] = []
        self.arrived = threading.Condition()

    def wait(self, *wanted: tuple[str, str]) -> dict[tuple[str, str], Any]:
        """Return spans by service and name, when all that are wanted have arrived."""
        until = time.monotonic() + _ARRIVES_S
        with self.arrived:
            while True:
                found = {(service, span.name): span for service, span in self.spans}
                if found.keys() >= set(wanted):
                    return found
                assert self.arrived.wait(until - time.monotonic()), f"only these arrived: {sorted(found)}"


class Handler(BaseHTTPRequestHandler):
    """Decodes what an exporter posts."""

    server: Receiver

    def do_POST(self) -> None:
        """Keep the spans of one request."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        with self.server.arrived:
            for resource in request.resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self.server.spans += [(names["service.name"], span) for span in scope.spans]
            self.server.arrived.notify_all()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server
        finally:
            server.shutdown()
            serving.join(10)


def test_spans_of_a_send_through_the_gateway_and_of_its_delivery_arrive(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with receiving() as receiver:
        there = f"http://127.0.0.1:{receiver.server_port}"
        env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": there, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        with NodeProcess(data_dir=tmp_path, env=env) as node:
            connection = node.connect("omnigate")
            headers = {"Authorization": f"Bearer {node.ready['token']}", "traceparent": CALLER}
            connection.request("POST", "/v1/mailbox/orders", b"hello", headers)
            sent = connection.getresponse()
            sent.read()
            connection.close()
            assert sent.status == 200
            got = node.ask("mailbox", "POST", "/v1/recv", {"topic": "orders"}, token=True).json()["messages"]
            bad = node.ask("mailbox", "GET", "/v1/topics/nowhere", token=True)
            spans = receiver.wait(
                ("omnigate", "POST /v1/mailbox/{topic}"), ("svc-mailbox", "send"), ("svc-mailbox", "commit"),
                ("svc-mailbox", "POST /v1/recv"), ("svc-mailbox", "deliver orders"),
                ("svc-mailbox", "GET /v1/topics/{topic}"),
            )  # fmt: skip

    gate, send = spans["omnigate", "POST /v1/mailbox/{topic}"], spans["svc-mailbox", "send"]
    commit, recv = spans["svc-mailbox", "commit"], spans["svc-mailbox", "POST /v1/recv"]
    deliver = spans["svc-mailbox", "deliver orders"]
    trace, caller = read_traceparent(CALLER) or (0, 0)
    assert {int.from_bytes(span.trace_id, "big") for span in (gate, send, commit)} == {trace}
    assert int.from_bytes(gate.parent_span_id, "big") == caller
    assert (send.parent_span_id, commit.parent_span_id) == (gate.span_id, send.span_id)
    assert gate.start_time_unix_nano <= send.start_time_unix_nano <= commit.start_time_unix_nano
    assert commit.end_time_unix_nano <= gate.end_time_unix_nano

    # The consumer is in a trace of its own and points at the producer's span, which the message carried.
    assert deliver.parent_span_id == recv.span_id
    assert deliver.trace_id != send.trace_id
    assert [(link.trace_id, link.span_id) for link in deliver.links] == [(send.trace_id, send.span_id)]
    assert got[0]["attrs"]["traceparent"] == f"00-{send.trace_id.hex()}-{send.span_id.hex()}-01"
    assert bad.status == 404
    assert spans["svc-mailbox", "GET /v1/topics/{topic}"].status.message == "not_found"


def test_without_a_collector_nothing_is_traced_and_messages_carry_nothing(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        node.ask("mailbox", "POST", "/v1/send", {"topic": "orders", "payload_b64": "aGk="}, token=True)
        got = node.ask("mailbox", "POST", "/v1/recv", {"topic": "orders"}, token=True).json()["messages"]

    assert got[0]["attrs"] == {}


def tracing() -> tuple[SpanTracer, list[RequestSpan]]:
    tracer, ended = SpanTracer(), list[RequestSpan]()
    tracer.sink = ended.append
    return tracer, ended


def test_what_follows_under_a_corr_id_is_a_child_of_the_open_span() -> None:
    tracer, ended = tracing()
    outer = tracer.begin("omnigate", "POST /x", "c-1", CALLER)
    inner = tracer.begin("svc-x", "send", "c-1")
    other = tracer.begin("svc-x", "send", "c-2")
    tracer.end(inner)
    tracer.end(outer, KeyError("x"))

    assert (inner.parent_id, inner.trace_id) == (outer.span_id, outer.trace_id)
    assert (other.parent_id, other.trace_id == outer.trace_id) == (0, False)
    assert [span.name for span in ended] == ["send", "POST /x"]
    assert ended[1].error == "KeyError"
    assert tracer.current("c-1") is None
    assert tracer.current("c-2") is other


@pytest.mark.parametrize("text", [None, "", "00-x", CALLER.upper(), f"00-{'0' * 32}-b7ad6b7169203331-01"])
def test_a_header_that_names_no_span_begins_a_trace(text: str | None) -> None:
    tracer, _ = tracing()

    assert read_traceparent(text) is None
    assert tracer.begin("svc-x", "send", "c-1", text).parent_id == 0


def test_spans_that_never_end_are_forgotten() -> None:
    tracer, _ = tracing()
    for number in range(OPEN_MAX + 10):
        tracer.begin("svc-x", "send", f"c-{number}")

    assert tracer.current("c-0") is None
    assert tracer.current(f"c-{OPEN_MAX + 9}") is not None
