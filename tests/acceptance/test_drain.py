"""A real node stops cleanly whatever idles at its gateway: each is answered or closed, and nothing is cut off."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.node_process import STOP_S, NodeProcess
from tests.acceptance.upstream_process import Upstream
from tests.net.server.certificates import make_certificate, trusting_context

RECV = b'{"topic": "idle", "wait_ms": 20000}'


class Idler:
    """A raw connection that is left alone until the node ends it."""

    def __init__(self, node: NodeProcess, service: str, *, secure: bool) -> None:
        self._node = node
        self._sock: socket.socket = socket.create_connection(("127.0.0.1", node.port(service)), STOP_S)
        if secure:
            self._sock = trusting_context().wrap_socket(self._sock)

    def ask(self, method: str, path: str, body: bytes = b"", *fields: str, length: int | None = None) -> Idler:
        """Send a request, or a part of one."""
        token, announced = self._node.ready["token"], len(body) if length is None else length
        lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *fields)
        self._sock.sendall("\r\n".join((*lines, f"Content-Length: {announced}", "", "")).encode() + body)
        return self

    def heard(self, part: bytes) -> Idler:
        """Wait for a part of the answer."""
        got = b""
        while part not in got:
            piece = self._sock.recv(65536)
            assert piece, got
            got += piece
        return self

    def rest(self) -> bytes:
        """Read to the end of the connection; a reset is an end too."""
        got = b""
        try:
            while piece := self._sock.recv(65536):
                got += piece
        except ConnectionError:
            got += b"(reset)"
        self._sock.close()
        return got


def _idle(node: NodeProcess) -> dict[str, Idler]:
    """Leave one of each kind."""

    def gate() -> Idler:
        return Idler(node, "omnigate", secure=True)

    return {
        "poll": gate().ask("POST", "/v1/recv", RECV),
        "poll of the path": gate().ask("POST", "/v1/mailbox/idle/recv", b'{"wait_ms": 20000}'),
        "stream": gate().ask("POST", "/v1/recv/stream", b'{"topic": "idle"}').heard(b"200 OK"),
        "kept": gate().ask("GET", "/healthz").heard(b'"ok"'),
        "said nothing": gate(),
        "no handshake": Idler(node, "omnigate", secure=False),
        "half a body": gate().ask("POST", "/v1/send", b'{"topic"', length=100),
        "half an object": gate().ask("PUT", "/v1/o", b"x" * 1000, length=1_000_000),
        "upstream": gate().ask("GET", "/shop/stall", b"", "X-Deadline-Ms: 60000"),
        "events of an upstream": gate().ask("GET", "/shop/events").heard(b"data: 1"),
        "page": Idler(node, "admin", secure=False).ask("GET", "/events/stream").heard(b"event: state"),
        "find": Idler(node, "dht_http", secure=False).ask(
            "GET", f"/v1/dht/providers/b3:{'0' * 64}", b"", "Accept: text/event-stream"
        ),
        "poll of the mailbox": Idler(node, "mailbox", secure=False).ask("POST", "/v1/recv", RECV),
    }


def _until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(STOP_S / 0.05)):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError("it never came to that")


def test_whatever_idles_at_a_node_is_answered_and_the_stop_is_clean(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    paths = make_certificate(tmp_path)
    with Upstream() as upstream:
        config.write_text(
            f"""
[omnigate]
tls.cert_path = "{paths["tls_cert_path"]}"
tls.key_path = "{paths["tls_key_path"]}"
drain_deadline = "5s"
downstream.request_timeout = "60s"
[[omnigate.routes]]
prefix = "/shop"
upstream = ["{upstream.url}"]
"""
        )
        with NodeProcess("--config", str(config), data_dir=tmp_path / "data") as node:
            idle = _idle(node)
            # Those whose request is whole are with a handler, and so are the two bodies that are on their way.
            _until(lambda: node.metric('inflight_requests{service="omnigate"}') == 7)
            _until(lambda: node.metric('inflight_requests{service="svc-mailbox"}') == 1)
            node.signal(signal.SIGTERM)
            answers = {name: idle.pop(name).rest() for name in ("poll", "poll of the path", "stream")}
            # The upstream answers while the node drains.
            upstream.released.set()
            answers.update((name, each.rest()) for name, each in idle.items())
            code, out, err = node.wait()

    assert (code, json.loads(out.splitlines()[-1])) == (0, {"event": "stopped", "aborted": []}), err
    for name in ("poll", "poll of the path", "poll of the mailbox"):
        assert answers[name].startswith(b"HTTP/1.1 200 "), name
        assert answers[name].endswith(b'{"messages":[]}'), name
    assert b'{"end":"draining"}' in answers["stream"]
    for name in ("stream", "events of an upstream", "page", "find"):
        assert answers[name].endswith(b"0\r\n\r\n"), name
    for name in ("half a body", "half an object"):
        assert answers[name].startswith(b"HTTP/1.1 503 "), name
        assert b'"phase":"draining"' in answers[name], name
    assert b"/stall" in answers["upstream"]
    assert answers["kept"] == answers["said nothing"] == b""
    assert answers["no handshake"] in (b"", b"(reset)")
