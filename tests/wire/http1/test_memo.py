"""Remembered heads: one that comes again is reused, one that differs is read anew, and there are only so many."""

from __future__ import annotations

import pytest

from penstock.kernel.errors import PenstockError
from penstock.kernel.memo import Memo
from penstock.wire.http1.head import HttpHead
from penstock.wire.http1.request import HEADS_KEPT, RequestReader

LONG = "x" * 200


def head(length: int, *more: str) -> bytes:
    lines = ["POST /v1/echo HTTP/1.1", "Host: localhost", f"X-Pad: {LONG}", f"Content-Length: {length}", *more, "", ""]
    return "\r\n".join(lines).encode()


def read(reader: RequestReader, data: bytes) -> tuple[object, bytes]:
    reader.receive(data)
    found = reader.next_head()
    assert found is not None
    return found, reader.read_body() if found.length else b""


def test_an_equal_head_is_reused_and_its_body_framed_anew() -> None:
    reader = RequestReader()
    read(reader, head(3) + b"new")
    first, one = read(reader, head(3) + b"abc")
    second, two = read(reader, head(3) + b"def")

    assert (one, two) == (b"abc", b"def")
    assert second is first


@pytest.mark.parametrize("other", [head(4), head(3, "X-Last: 1"), head(3).replace(b"localhost", b"localhosu")])
def test_a_head_that_differs_in_one_place_is_read_anew(other: bytes) -> None:
    reader = RequestReader()
    read(reader, head(3) + b"new")
    first, _ = read(reader, head(3) + b"abc")
    length = 4 if b"Length: 4" in other else 3
    second, body = read(reader, other + b"wxyz"[:length])

    assert second is not first
    assert body == b"wxyz"[:length]
    assert reader.pending_bytes == 0


def test_a_remembered_head_does_not_excuse_a_malformed_one() -> None:
    reader = RequestReader()
    for body in (b"new", b"abc"):
        read(reader, head(3) + body)
    reader.receive(head(3, "Transfer-Encoding: chunked") + b"abc")

    with pytest.raises(PenstockError):
        reader.next_head()


def test_a_client_that_goes_round_several_heads_has_each_read_twice() -> None:
    reader = RequestReader()
    for length in (3, 4, 5):
        read(reader, head(length) + b"n" * length)
    firsts = [read(reader, head(length) + b"x" * length)[0] for length in (3, 4, 5)]
    seconds = [read(reader, head(length) + b"y" * length)[0] for length in (3, 4, 5)]

    assert all(second is first for first, second in zip(firsts, seconds, strict=True))


def test_readers_with_the_same_memory_share_their_heads_and_not_their_bodies() -> None:
    heads: Memo[bytes, HttpHead] = Memo(8)
    one, other = RequestReader(heads), RequestReader(heads)
    read(one, head(3) + b"new")
    first, body = read(one, head(3) + b"abc")
    other.receive(head(3) + b"d")

    assert other.next_head() is first
    assert (body, other.read_body(), other.body_done) == (b"abc", b"d", False)
    other.receive(b"ef")
    assert (other.read_body(), other.body_done, one.body_done) == (b"ef", True, True)


def test_remembered_heads_are_bounded_whatever_a_client_sends() -> None:
    heads: Memo[bytes, HttpHead] = Memo(HEADS_KEPT)
    reader = RequestReader(heads)
    for number in range(3000):
        for _ in range(2):
            read(reader, head(3, f"Traceparent: {number}") + b"abc")

    assert len(heads) <= HEADS_KEPT


def test_a_head_that_comes_once_takes_no_place() -> None:
    heads: Memo[bytes, HttpHead] = Memo(HEADS_KEPT)
    reader = RequestReader(heads)
    for number in range(50):
        read(reader, head(3, f"X-Signature: {number}") + b"abc")

    assert len(heads) == 0


def test_a_reader_goes_on_with_new_heads_between_remembered_ones() -> None:
    reader = RequestReader()
    for round_ in range(3):
        for length in (3, 7):
            _, body = read(reader, head(length) + bytes([65 + round_]) * length)

            assert body == bytes([65 + round_]) * length
        _, body = read(reader, head(2, f"X-Round: {round_}") + b"zz")
        assert body == b"zz"
