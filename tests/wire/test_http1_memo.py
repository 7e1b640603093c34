"""The remembered head: an equal one is reused, one that differs anywhere is read anew."""

from __future__ import annotations

import pytest

from penstock.kernel.errors import PenstockError
from penstock.wire.http1 import RequestReader

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
    first, one = read(reader, head(3) + b"abc")
    second, two = read(reader, head(3) + b"def")

    assert (one, two) == (b"abc", b"def")
    assert second is first


@pytest.mark.parametrize("other", [head(4), head(3, "X-Last: 1"), head(3).replace(b"localhost", b"localhosu")])
def test_a_head_that_differs_in_one_place_is_read_anew(other: bytes) -> None:
    reader = RequestReader()
    first, _ = read(reader, head(3) + b"abc")
    length = 4 if b"Length: 4" in other else 3
    second, body = read(reader, other + b"wxyz"[:length])

    assert second is not first
    assert body == b"wxyz"[:length]
    assert reader.pending_bytes == 0


def test_a_remembered_head_does_not_excuse_a_malformed_one() -> None:
    reader = RequestReader()
    read(reader, head(3) + b"abc")
    reader.receive(head(3, "Transfer-Encoding: chunked") + b"abc")

    with pytest.raises(PenstockError):
        reader.next_head()
