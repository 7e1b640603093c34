"""Requests as Hypothesis draws them: mostly well formed, sometimes bent in one place."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from penstock.kernel.errors import PenstockError
from penstock.wire.http1.request import RequestReader

TOKEN = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.!"


@dataclass(frozen=True)
class Read:
    """What a reader made of some bytes: whole requests, and the status of the fault that ended it."""

    requests: tuple[tuple[str, bytes, tuple[tuple[bytes, bytes], ...], bytes], ...]
    fault: int | None


def read_all(pieces: list[bytes]) -> Read:
    """Feed the pieces to a reader and take every whole request out."""
    reader = RequestReader()
    done = []
    head, body = None, b""
    try:
        for piece in pieces:
            reader.receive(piece)
            while True:
                if head is None:
                    head, body = reader.next_head(), b""
                    if head is None:
                        break
                body += _read_body(reader)
                if not reader.body_done:
                    break
                done.append((head.method, head.target.raw, tuple(sorted(head.headers.items())), body))
                keep, head = head.keep_alive, None
                if not keep:
                    return Read(tuple(done), None)
    except PenstockError as fault:
        return Read(tuple(done), fault.status)
    return Read(tuple(done), None)


def _read_body(reader: RequestReader) -> bytes:
    """Read until the body is whole or nothing moves any more: one call takes a bounded number of steps."""
    body, had = b"", -1
    while not reader.body_done and reader.pending_bytes != had:
        had = reader.pending_bytes
        body += reader.read_body()
    return body


names = st.text(TOKEN, min_size=1, max_size=12).filter(
    lambda name: (
        name.lower()
        not in {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "transfer_encoding"}
    )
)
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
paths = st.lists(st.text("abcXYZ019-._~", min_size=1, max_size=6).filter(lambda s: set(s) != {"."}), max_size=4)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw one request with a body framed by length, by chunks, or none."""
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]))
    target = "/" + "/".join(draw(paths)) + draw(st.sampled_from(["", "?", "?a=b", "?x=%20&y"]))
    fields = draw(st.lists(st.tuples(names, values), max_size=5))
    body = draw(st.binary(max_size=40))
    framing = draw(st.sampled_from(["length", "chunked", "none"]))
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *[f"{name}: {value}" for name, value in fields]]
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}")
        payload = body
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        payload = _chunks(draw, body)
    else:
        payload = b""
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + payload


def _chunks(draw: st.DrawFn, body: bytes) -> bytes:
    out, at = b"", 0
    while at < len(body):
        size = draw(st.integers(1, len(body) - at))
        extension = draw(st.sampled_from([b"", b";a=b"]))
        out += b"%x%b\r\n%b\r\n" % (size, extension, body[at : at + size])
        at += size
    return out + b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: t\r\n"])) + b"\r\n"


BENDS = (b"\r", b"\n", b"\0", b" ", b"\t", b":", b"\x80", b"\r\n", b"\r\n\r\n", b"_", b"chunked", b"0")


@st.composite
def bent_requests(draw: st.DrawFn) -> bytes:
    """Draw one or two requests and put something into, or take something out of, one place."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=2)))
    at = draw(st.integers(0, len(data)))
    cut = draw(st.integers(0, 3))
    return data[:at] + draw(st.sampled_from(BENDS)) + data[at + cut :]
