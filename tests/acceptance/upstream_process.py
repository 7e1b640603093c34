"""An upstream of ours for a node under test: answers as the path says, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Handler(BaseHTTPRequestHandler):
    """`/stall` never answers, `/fail` says 500, `/events` never ends, anything else echoes the request as JSON."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        upstream: Upstream = self.server.upstream  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        seen = {"method": self.command, "path": self.path, "headers": dict(self.headers.items()), "body": body.decode()}
        upstream.seen.append(seen)
        if "/events" in self.path:
            self._stream(upstream)
            return
        if "/stall" in self.path:
            upstream.released.wait(30)
        data = json.dumps(seen).encode()
        self.send_response(500 if "/fail" in self.path else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        with suppress(OSError):
            # Whoever gave up waiting has gone.
            self.end_headers()
            self.wfile.write(data)

    def _stream(self, upstream: Upstream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"9\r\ndata: 1\n\n\r\n")
        upstream.released.wait(30)
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _answer  # noqa: N815 - the names the base class calls

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


class Upstream:
    """A threaded server on a port of its own."""

    def __init__(self) -> None:
        """Make it; nothing is served yet."""
        self.seen: list[dict[str, Any]] = []
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.upstream = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Return its base."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop; what stalls is let go."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
