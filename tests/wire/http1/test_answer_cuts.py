"""Cutting an answer's bytes anywhere changes nothing, and what is accepted h11 reads alike."""

from __future__ import annotations

import itertools

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wire.http1.answer_reading import CHUNKED, every_byte, read

token = st.text("abcXYZ09-_", min_size=1, max_size=8).map(str.encode)
value = st.text("abc ,;=09", max_size=12).map(lambda text: text.strip().encode())
body = st.binary(max_size=200)


@st.composite
def chunked(draw) -> bytes:
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=5))
    extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
    trailers = draw(st.sampled_from([b"", b"X: y\r\n", b"A: b\r\nC: d\r\n"]))
    return b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces) + b"0\r\n" + trailers + b"\r\n"


@st.composite
def answers(draw) -> bytes:
    status = draw(st.sampled_from([b"200 OK", b"204 ", b"304 Not Modified", b"404 Not Found", b"503"]))
    names = st.tuples(token.map(lambda name: b"X-" + name), value)
    lines = [b"%b: %b\r\n" % pair for pair in draw(st.lists(names, max_size=4))]
    kind = draw(st.sampled_from(["length", "chunked", "eof", "short"]))
    content = draw(chunked() if kind == "chunked" else body)
    if kind == "chunked":
        lines.append(b"Transfer-Encoding: Chunked\r\n")
    elif kind != "eof":
        lines.append(b"Content-Length: %d\r\n" % (len(content) + 3 * (kind == "short")))
    hints = b"HTTP/1.1 100 Continue\r\n\r\n" * draw(st.integers(0, 2))
    return hints + b"HTTP/1.1 " + status + b"\r\n" + b"".join(lines) + b"\r\n" + content


@given(
    sent=st.one_of(answers(), st.builds(lambda a, b: a + b, answers(), st.binary(max_size=20)), st.binary(max_size=60)),
    method=st.sampled_from(["GET", "HEAD"]),
    end=st.sampled_from(["", "eof", "cut"]),
    cuts=st.lists(st.integers(0, 400), max_size=4),
)
@example(sent=CHUNKED + b"1\r\na\r\n0\r\n\r\n\r\n", method="GET", end="eof", cuts=[])
@settings(max_examples=150, deadline=None)
def test_where_the_bytes_are_cut_changes_nothing(sent: bytes, method: str, end: str, cuts: list[int]) -> None:
    whole = read([sent], method, end).result()
    edges = [0, *sorted(cuts), len(sent)]
    drawn = [sent[low:high] for low, high in itertools.pairwise(edges)]

    assert read(every_byte(sent), method, end).result() == whole
    assert read([piece for piece in drawn if piece], method, end).result() == whole


def read_by_h11(sent: bytes, method: str) -> tuple[int, bytes, bool]:
    """Read one whole answer the way h11 does: status, body, and whether it was over before the end of input."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(sent)
    peer.receive_data(b"")
    status, content = 0, b""
    while True:
        event = peer.next_event()
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            content += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return status, content, True
        elif not isinstance(event, h11.InformationalResponse):
            return status, content, False


@given(sent=answers(), method=st.sampled_from(["GET", "HEAD", "POST"]))
@settings(max_examples=150, deadline=None)
def test_what_is_accepted_h11_reads_alike(sent: bytes, method: str) -> None:
    reading = read([sent], method, "eof")
    if reading.ends != [True]:
        return

    assert read_by_h11(sent, method) == (reading.heads[0].status, reading.body, True)
