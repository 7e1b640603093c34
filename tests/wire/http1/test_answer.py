"""The answer parser: what it frames, what it refuses, and what it keeps a connection for."""

from __future__ import annotations

import pytest

from penstock.wire.http1.answer import (
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    HEAD_BYTES_MAX,
    INFORMATIONAL_MAX,
    AnswerEnd,
    AnswerParser,
    Framing,
)
from penstock.wire.http1.answer_chunks import TRAILERS_MAX
from tests.wire.http1 import answer_reading
from tests.wire.http1.answer_reading import (
    CHUNKED,
    OK,
    every_byte,
    read,
)

# --- framing


def test_length_frames_the_body_and_the_connection_stays_usable() -> None:
    reading = read([OK + b"Content-Length: 5\r\n\r\nhello"])

    assert (reading.body, reading.ends, reading.parser.reusable) == (b"hello", [True], True)
    assert reading.heads[0].framing is Framing.LENGTH


def test_chunks_are_joined_and_trailers_dropped() -> None:
    reading = read([CHUNKED + b'3;a=b;c="d e"\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 1\r\n\r\n'])

    assert (reading.body, reading.ends, reading.parser.reusable) == (b"hello", [True], True)
    assert b"x-sum" not in reading.heads[0].headers


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_204_and_304_have_no_body_whatever_their_length_says(status: bytes) -> None:
    reading = read([b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n"])

    assert (reading.body, reading.ends, reading.parser.reusable) == (b"", [True], True)


@pytest.mark.parametrize("field", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_answer_to_head_has_no_body_and_the_next_answer_is_whole(field: bytes) -> None:
    reading = read([OK + field + b"\r\n\r\n"], "HEAD")
    assert (reading.ends, reading.parser.reusable) == ([True], True)

    reading.parser.begin("GET")
    reading.take(reading.parser.feed(OK + b"Content-Length: 2\r\n\r\nok"))

    assert (reading.body, len(reading.heads)) == (b"ok", 2)


def test_body_without_length_ends_with_the_connection_and_is_its_last() -> None:
    reading = read([OK + b"\r\n", b"so ", b"far"], end="eof")

    assert (reading.body, reading.ends, reading.parser.reusable) == (b"so far", [True], False)


def test_body_without_length_is_incomplete_when_the_connection_broke() -> None:
    reading = read([OK + b"\r\n", b"so far"], end="cut")

    assert reading.ends == [False]


@pytest.mark.parametrize(
    "sent", [OK + b"Content-Length: 9\r\n\r\nhello", CHUNKED + b"5\r\nhello\r\n", CHUNKED + b"5\r\nhello\r\n0\r\n"]
)
@pytest.mark.parametrize("end", ["eof", "cut"])
def test_a_cut_body_is_marked_incomplete_and_its_bytes_are_kept(sent: bytes, end: str) -> None:
    reading = read([sent], end=end)

    assert (reading.body, reading.ends, reading.parser.reusable) == (b"hello", [False], False)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 20", OK + b"Content-Le"])
def test_the_end_before_the_head_is_over_is_a_fault(sent: bytes) -> None:
    assert read([sent], end="eof").faults == 1


# --- unasked bytes


@pytest.mark.parametrize("surplus", [b"x", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", OK + b"Content-Length: 2\r\n\r\nok"),
        ("GET", OK + b"Content-Length: 0\r\n\r\n"),
        ("GET", CHUNKED + b"2\r\nok\r\n0\r\n\r\n"),
        ("GET", CHUNKED + b"2\r\nok\r\n0\r\nA: b\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 \r\n\r\n"),
        ("HEAD", OK + b"Content-Length: 2\r\n\r\n"),
    ],
)
def test_bytes_beyond_the_answer_are_dropped_and_end_reuse(method: str, answer: bytes, surplus: bytes) -> None:
    together, apart = read([answer + surplus], method), read([*every_byte(answer), surplus], method)

    for reading in (together, apart):
        assert (len(reading.heads), reading.ends, reading.faults) == (1, [True], 0)
        assert not reading.parser.reusable


def test_bytes_before_any_request_end_reuse() -> None:
    parser = AnswerParser()

    assert parser.feed(b"220 mail ready\r\n") == []
    assert not parser.reusable
    with pytest.raises(RuntimeError):
        parser.begin("GET")


def test_a_second_request_before_the_end_of_the_first_answer_is_a_bug() -> None:
    parser = AnswerParser()
    parser.begin("GET")

    with pytest.raises(RuntimeError):
        parser.begin("GET")


# --- informational answers


def test_up_to_eight_informational_answers_are_skipped() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * INFORMATIONAL_MAX
    reading = read([hints + OK + b"Content-Length: 2\r\n\r\nok"])

    assert ([head.status for head in reading.heads], reading.body, reading.parser.reusable) == ([200], b"ok", True)


def test_a_ninth_informational_answer_is_a_fault() -> None:
    reading = read([b"HTTP/1.1 100 Continue\r\n\r\n" * (INFORMATIONAL_MAX + 1)])

    assert (reading.heads, reading.faults, reading.parser.reusable) == ([], 1, False)


def test_switching_protocols_unasked_is_a_fault() -> None:
    assert read([b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"]).faults == 1


# --- keep-alive


@pytest.mark.parametrize(
    ("version", "connection", "reusable"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: x, Close\r\n", False),
        (b"1.1", b"Connection: x\r\nConnection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", True),
        (b"1.0", b"Connection: keep-alive, close\r\n", False),
    ],
)
def test_reuse_follows_version_and_connection_field(version: bytes, connection: bytes, reusable: bool) -> None:
    reading = read([b"HTTP/" + version + b" 200 OK\r\n" + connection + b"Content-Length: 0\r\n\r\n"])

    assert reading.ends == [True]
    assert reading.parser.reusable is reusable


# --- what is refused

REFUSED_HEADS = [
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x15\x03\x01\x00\x02\x02\x46",
    b"\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    b"HTTP/1.2 200 OK\r\n\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"http/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1  200 OK\r\n\r\n",
    b"HTTP/1.1 99 OK\r\n\r\n",
    b"HTTP/1.1 099 OK\r\n\r\n",
    b"HTTP/1.1 600 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 200 O\x01K\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\n\n",
    OK + b"A: b\nC: d\r\n\r\n",
    OK + b"A: b\rC: d\r\n\r\n",
    OK + b"A : b\r\n\r\n",
    OK + b"A: b\r\n c\r\n\r\n",
    OK + b"A\r\n\r\n",
    OK + b": b\r\n\r\n",
    OK + b"A: \x00\r\n\r\n",
    OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
    OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
    OK + b"Content-Length: 2, 2\r\n\r\n",
    OK + b"Content-Length: +2\r\n\r\n",
    OK + b"Content-Length: 0x2\r\n\r\n",
    OK + b"Content-Length: \r\n\r\n",
    OK + b"Content-Length: 18446744073709551616\r\n\r\n",
    OK + b"Content-Length: " + b"0" * 5000 + b"2\r\n\r\n",
    OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    OK + b"Transfer-Encoding: gzip\r\n\r\n",
    OK + b"Transfer-Encoding: identity\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    OK + b"A: " + b"x" * FIELD_BYTES_MAX + b"\r\n\r\n",
    OK + b"A: b\r\n" * (FIELDS_MAX + 1) + b"\r\n",
    OK + b"A: " + b"x" * HEAD_BYTES_MAX,
]


@pytest.mark.parametrize("sent", REFUSED_HEADS)
def test_ambiguous_heads_are_refused_whole_and_byte_by_byte(sent: bytes) -> None:
    for reading in (read([sent]), read(every_byte(sent))):
        assert (reading.heads, reading.body, reading.ends, reading.faults) == ([], b"", [], 1)
        assert not reading.parser.reusable


REFUSED_CHUNKS = [
    b"g\r\n",
    b"\r\n",
    b"-1\r\n",
    b"0x1\r\na\r\n",
    b" 1\r\na\r\n",
    b"1 \r\na\r\n",
    b"1\na\r\n",
    b"1;\r\na\r\n",
    b"1;a=\r\na\r\n",
    b"1; a\r\na\r\n",
    b"00000000000000001\r\na\r\n",
    b"1\r\nab\r\n",
    b"1\r\na\n",
    b"1\r\na0\r\n\r\n",
    b"1;" + b"e" * 2000 + b"\r\na\r\n",
    b"0\r\nA\r\n\r\n",
    b"0\r\n A: b\r\n\r\n",
    b"0\r\nA: b\n\r\n",
    b"0\r\nContent-Length: 1\r\n\r\n",
    b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"0\r\n" + b"A: b\r\n" * (TRAILERS_MAX + 1) + b"\r\n",
    b"0\r\nA: " + b"x" * 5000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("sent", REFUSED_CHUNKS)
def test_bad_chunks_are_a_fault_after_the_head_whole_and_byte_by_byte(sent: bytes) -> None:
    for reading in (read([CHUNKED + sent]), read(every_byte(CHUNKED + sent))):
        assert (len(reading.heads), reading.ends, reading.faults) == (1, [], 1)
        assert not reading.parser.reusable


def test_body_before_a_bad_chunk_is_not_lost() -> None:
    reading = read([CHUNKED + b"2\r\nok\r\nzz\r\n"])

    assert (reading.body, reading.faults) == (b"ok", 1)


def test_fields_keep_repeats_apart_and_headers_join_them() -> None:
    head = read([OK + b"Set-Cookie: a \t\r\nSET-COOKIE:b\r\nContent-Length: 0\r\n\r\n"]).heads[0]

    assert head.fields == ((b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"0"))
    assert head.headers[b"set-cookie"] == b"a, b"


# --- planted bugs: the checks above must see them


class TrustsTheHeadAlone(AnswerParser):
    """A wrong twin that frames without knowing the method, as httptools does."""

    __slots__ = ()

    def begin(self, method: str) -> None:
        super().begin("GET")


class OverlooksUnaskedBytes(AnswerParser):
    """A wrong twin that keeps a connection whatever else came on it."""

    __slots__ = ()

    @property
    def reusable(self) -> bool:
        return self.ended


class BelievesEveryEnd(AnswerParser):
    """A wrong twin that takes any end of input for the end of the answer."""

    __slots__ = ()

    def eof(self):
        return [AnswerEnd(complete=True)]


@pytest.mark.parametrize(
    ("twin", "check"),
    [
        (
            TrustsTheHeadAlone,
            lambda: test_answer_to_head_has_no_body_and_the_next_answer_is_whole(b"Content-Length: 5"),
        ),
        (
            OverlooksUnaskedBytes,
            lambda: test_bytes_beyond_the_answer_are_dropped_and_end_reuse("GET", answer_of(b"ok"), b"x"),
        ),
        (
            BelievesEveryEnd,
            lambda: test_a_cut_body_is_marked_incomplete_and_its_bytes_are_kept(answer_of(b"hello!")[:-1], "eof"),
        ),
    ],
)
def test_checks_see_the_planted_bugs(twin, check, monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    monkeypatch.setattr(answer_reading, "AnswerParser", twin)

    with pytest.raises((AssertionError, RuntimeError)):
        check()


def answer_of(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
