"""The request reader: what it frames, what it refuses, and that a refusal is final."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from penstock.kernel.errors import OverLimit, PenstockError
from penstock.wire.http1 import head as http1_head
from penstock.wire.http1.head import (
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    HEAD_BYTES_MAX,
    REQUEST_LINE_BYTES_MAX,
)
from penstock.wire.http1.request import RequestReader
from tests.wire.http1.requests_drawn import Read, read_all

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# Each line is one thing that two readers could understand differently, or that has no bound.
REFUSED: dict[str, tuple[bytes, int]] = {
    "length and chunked": (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked and length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
    "two different lengths": (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "two equal lengths": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    "length with a sign": (POST + b"Content-Length: +3\r\n\r\nabc", 400),
    "length in hex": (POST + b"Content-Length: 0x3\r\n\r\nabc", 400),
    "length as a list": (POST + b"Content-Length: 3, 3\r\n\r\nabc", 400),
    "length of 21 digits": (POST + b"Content-Length: 000000000000000000003\r\n\r\nabc", 400),
    "coding gzip, chunked": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "coding gzip": (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
    "coding identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
    "coding xchunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 400),
    "coding with parameter": (POST + b"Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n", 400),
    "coding twice": (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "coding on 1.0": (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "look-alike of a framing field": (POST + b"Transfer_Encoding: chunked\r\n\r\n", 400),
    "chunk size not hex": (CHUNKED + b"zz\r\nabc\r\n", 400),
    "chunk size with a sign": (CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size with 0x": (CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size of 17 digits": (CHUNKED + b"00000000000000003\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size empty": (CHUNKED + b"\r\nabc\r\n0\r\n\r\n", 400),
    "chunk line with bare LF": (CHUNKED + b"3\nabc\r\n0\r\n\r\n", 400),
    "chunk data too long": (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", 400),
    "chunk extension without end": (CHUNKED + b"3;" + b"a" * 20_000, 413),
    "chunks out of proportion": (CHUNKED + b"1;aaaaaaaaaaaaaaaa\r\nx\r\n" * 2000, 413),
    "length in a trailer": (CHUNKED + b"0\r\nContent-Length: 3\r\n\r\n", 400),
    "length in a trailer, then 17 trailers": (
        CHUNKED + b"0\r\nContent-Length: 3\r\n" + b"a: b\r\n" * 17 + b"\r\n",
        400,
    ),
    "chunk size that never ends": (CHUNKED + b"ffffffffffffffff\r\n", 413),
    "chunk line over its limit": (CHUNKED + b"3;" + b"a" * 4096 + b"\r\nabc\r\n0\r\n\r\n", 413),
    "17 trailers": (CHUNKED + b"0\r\n" + b"a: b\r\n" * 17 + b"\r\n", 431),
    "5 KiB of trailers": (CHUNKED + b"0\r\na: " + b"b" * 5000 + b"\r\n\r\n", 431),
    "folded field": (GET + b"A: b\r\n c\r\n\r\n", 400),
    "bare LF after the request line": (b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    "bare LF between fields": (GET + b"A: b\nC: d\r\n\r\n", 400),
    "bare CR in a value": (GET + b"A: b\rc\r\n\r\n", 400),
    "space before the colon": (GET + b"A : b\r\n\r\n", 400),
    "tab before the colon": (GET + b"A\t: b\r\n\r\n", 400),
    "no colon": (GET + b"A\r\n\r\n", 400),
    "empty name": (GET + b": b\r\n\r\n", 400),
    "NUL in a value": (GET + b"A: b\0c\r\n\r\n", 400),
    "control character in a value": (GET + b"A: b\x01c\r\n\r\n", 400),
    "NUL in the target": (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (GET + b"Host: b\r\n\r\n", 400),
    "two equal Hosts": (GET + b"Host: a\r\n\r\n", 400),
    "two Hosts in different case": (GET + b"hOST: a\r\n\r\n", 400),
    "empty Host": (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", 400),
    "Host with a path": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "Host with userinfo": (b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    "bytes above ASCII in Host": (b"GET / HTTP/1.1\r\nHost: \xe4\r\n\r\n", 400),
    "bytes above ASCII in Authorization": (GET + b"Authorization: \xe4\r\n\r\n", 400),
    "two Authorizations": (GET + b"Authorization: a\r\nAuthorization: b\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
    "RTSP": (b"GET / RTSP/1.0\r\nHost: a\r\n\r\n", 400),
    "ICE": (b"SOURCE / ICE/1.0\r\nHost: a\r\n\r\n", 400),
    "http in lower case": (b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    "two spaces": (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "space at the end of the line": (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    "tab in the request line": (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "lower-case method": (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "method of another protocol": (b"DESCRIBE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    "unknown expectation": (POST + b"Expect: 200-ok\r\nContent-Length: 1\r\n\r\na", 417),
    "two blank lines first": (b"\r\n\r\n" + GET + b"\r\n", 400),
    "bare LF first": (b"\n" + GET + b"\r\n", 400),
    "101 fields": (GET + b"A: b\r\n" * FIELDS_MAX + b"\r\n", 431),
    "field over its limit": (GET + b"A: " + b"b" * FIELD_BYTES_MAX + b"\r\n\r\n", 431),
    "field of 64 KiB without end": (GET + b"A: " + b"b" * 65536, 431),
    "request line over its limit": (b"GET /" + b"a" * REQUEST_LINE_BYTES_MAX + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    "request line without end": (b"GET /" + b"a" * REQUEST_LINE_BYTES_MAX, 431),
    "head over its limit": (GET + (b"A: " + b"b" * 9000 + b"\r\n") * 4 + b"\r\n", 431),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01", 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_or_unbounded_input_is_refused(name: str) -> None:
    data, status = REFUSED[name]

    assert read_all([data]) == Read((), status)


@pytest.mark.parametrize("name", [name for name, (data, _) in REFUSED.items() if len(data) < 500])
def test_a_refusal_does_not_depend_on_how_the_bytes_were_split(name: str) -> None:
    data, status = REFUSED[name]

    assert read_all([data[at : at + 1] for at in range(len(data))]) == Read((), status)


@pytest.mark.parametrize("name", [name for name, (data, _) in REFUSED.items() if 500 <= len(data) < 20_000])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_refusal_of_something_large_does_not_depend_on_the_split_either(name: str, size: int) -> None:
    data, status = REFUSED[name]

    assert read_all([data[at : at + size] for at in range(0, len(data), size)]) == Read((), status)


def test_a_chunk_that_cannot_fit_is_refused_when_it_is_announced_and_what_came_before_is_handed_over_first() -> None:
    reader = RequestReader()
    reader.receive(CHUNKED + b"3\r\nabc\r\n8\r\n")
    assert reader.next_head() is not None
    reader.bound_body(10)

    assert reader.read_body() == b"abc"
    with pytest.raises(OverLimit) as caught:
        reader.read_body()
    assert caught.value.limit == "body"


def test_a_byte_that_comes_alone_costs_no_second_look_at_the_lines_before_it() -> None:
    """Counts lines looked at, not time: the head is scanned once, whatever the packets."""
    looked = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code is http1_head._check_line.__code__

    head = GET + b"".join(b"X%d: %b\r\n" % (number, b"a" * 100) for number in range(95)) + b"\r\n"
    reader = RequestReader()
    reader.receive(head[:-1000])
    reader.next_head()
    sys.setprofile(count)
    try:
        for byte in head[-1000:]:
            reader.receive(bytes([byte]))
            read = reader.next_head()
    finally:
        sys.setprofile(None)

    assert read is not None
    # One look at the unfinished line a byte, one more at each line that ends, one scan of the whole head.
    assert looked <= 1000 + 2 * 97


@pytest.mark.parametrize("first", [b"", b"\r\n"])
def test_two_large_heads_in_single_bytes_are_both_read_and_the_same_as_whole(first: bytes) -> None:
    head = first + GET + b"".join(b"X%d: %b\r\n" % (number, b"a" * 90) for number in range(95)) + b"\r\n"
    data = head + head

    whole, split = read_all([data]), read_all([data[at : at + 1] for at in range(len(data))])

    assert len(whole.requests) == 2
    assert split == whole


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upgrade_is_ignored_and_its_body_is_still_a_body(framing: str) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    length = b"Content-Length: %d\r\n\r\n%b" % (len(smuggled), smuggled)
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(smuggled), smuggled)
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
    data = POST + upgrade + (length if framing == "length" else chunks) + GET + b"\r\n"

    read = read_all([data])

    assert [(request[0], request[1], request[3]) for request in read.requests] == [
        ("POST", b"/", smuggled),
        ("GET", b"/", b""),
    ]
    assert b"upgrade" not in dict(read.requests[0][2])


def test_one_leading_blank_line_is_ignored_before_every_request() -> None:
    read = read_all([b"\r\n" + GET + b"\r\n" + b"\r\n" + GET + b"\r\n"])

    assert len(read.requests) == 2
    assert read.fault is None


def test_pipelined_requests_come_out_in_order_with_their_own_bodies() -> None:
    one = POST + b"Content-Length: 3\r\n\r\nabc"
    two = CHUNKED + b"2\r\nde\r\n1;x=y\r\nf\r\n0\r\nIgnored: yes\r\n\r\n"

    read = read_all([one + two + one])

    assert [request[3] for request in read.requests] == [b"abc", b"def", b"abc"]


def test_trailers_never_reach_the_fields() -> None:
    read = read_all([CHUNKED + b"0\r\nHost: evil\r\nAuthorization: evil\r\n\r\n"])

    assert dict(read.requests[0][2]) == {b"host": b"a", b"transfer-encoding": b"chunked"}


def test_repeated_list_fields_are_joined_and_blanks_around_values_dropped() -> None:
    read = read_all([GET + b"Accept: a \t\r\nACCEPT:  b\r\nCookie: c=1\r\nCookie: d=2\r\n\r\n"])

    assert dict(read.requests[0][2]) == {b"host": b"a", b"accept": b"a, b", b"cookie": b"c=1; d=2"}


def test_a_fault_after_a_whole_request_leaves_that_request_standing() -> None:
    read = read_all([GET + b"\r\n" + b"GET  / HTTP/1.1\r\n\r\n"])

    assert len(read.requests) == 1
    assert read.fault == 400


def test_equal_heads_are_read_once_and_their_bodies_still_framed() -> None:
    reader = RequestReader()
    request = POST + b"Content-Length: 3\r\n\r\n"
    other = POST + b"Content-Length: 4\r\n\r\n"
    bodies = []
    for head, body in ((request, b"abc"), (request, b"def"), (other, b"ghij"), (request, b"klm"), (request, b"nop")):
        reader.receive(head + body)
        assert reader.next_head() is not None
        bodies.append(reader.read_body())

    assert bodies == [b"abc", b"def", b"ghij", b"klm", b"nop"]
    assert reader.body_done
    assert reader.pending_bytes == 0


def test_connection_close_and_http_1_0_end_the_connection() -> None:
    reader = RequestReader()
    reader.receive(GET + b"Connection: Keep-Alive, Close\r\n\r\n")
    closing = reader.next_head()
    reader = RequestReader()
    reader.receive(b"GET / HTTP/1.0\r\n\r\n")
    old = reader.next_head()

    assert closing is not None
    assert not closing.keep_alive
    assert old is not None
    assert not old.keep_alive


def test_a_head_within_all_limits_is_accepted_at_their_edge() -> None:
    fields = b"".join(b"f%d: v\r\n" % number for number in range(FIELDS_MAX - 1))
    long_field = b"A: " + b"b" * (FIELD_BYTES_MAX - 3) + b"\r\n"

    assert len(read_all([GET + fields + b"\r\n"]).requests) == 1
    assert len(read_all([GET + long_field + b"\r\n"]).requests) == 1
    assert len(GET + long_field) < HEAD_BYTES_MAX


def test_after_a_fault_the_same_bytes_are_never_read_as_a_request() -> None:
    reader = RequestReader()
    reader.receive(b"GET / HTTP/1.1\nHost: a\r\n\r\n" + GET + b"\r\n")

    with pytest.raises(PenstockError):
        reader.next_head()
    assert reader.drop_pending() >= 0
    assert reader.next_head() is None
