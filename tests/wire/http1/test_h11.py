"""Differential: what we accept h11 accepts, with equal method, target, fields and body, however the bytes are split."""

from __future__ import annotations

import h11
import pytest
from hypothesis import HealthCheck, given, settings

from penstock.wire.http1 import head
from tests.wire.http1.h11_differences import DIFFERENCES, excused
from tests.wire.http1.requests_drawn import (
    Read,
    bent_requests,
    read_all,
    requests,
)


def h11_reads(data: bytes, count: int) -> list[tuple[str, bytes, tuple[tuple[bytes, bytes], ...], bytes]] | None:
    """Read `count` requests with h11, or return None if it refuses one."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    out = []
    try:
        for _ in range(count):
            out.append(_one(connection))
            if connection.their_state is not h11.DONE:
                break
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
    except (h11.RemoteProtocolError, AssertionError):
        return None
    return out


def _one(connection: h11.Connection) -> tuple[str, bytes, tuple[tuple[bytes, bytes], ...], bytes]:
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    body = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        body += bytes(event.data)
    fields: dict[bytes, bytes] = {}
    for name, value in request.headers:
        glue = b"; " if name == b"cookie" else b", "
        fields[name] = fields[name] + glue + value if name in fields else value
    return request.method.decode(), request.target, tuple(sorted(fields.items())), body


def check(data: bytes) -> Read:
    """Compare both readings of `data`; return ours."""
    ours = read_all([data])
    if ours.requests and excused(data) is None:
        theirs = h11_reads(data, len(ours.requests))
        assert theirs is not None, f"h11 refuses what we accept: {data!r}"
        assert theirs == list(ours.requests)
    return ours


@settings(max_examples=150, deadline=None)
@given(requests())
def test_a_well_formed_request_is_read_as_h11_reads_it(data: bytes) -> None:
    ours = check(data)

    assert ours.fault is None
    assert len(ours.requests) == 1


@settings(max_examples=400, deadline=None)
@given(bent_requests())
def test_whatever_we_accept_of_bent_input_h11_accepts_alike(data: bytes) -> None:
    check(data)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bent_requests())
def test_input_split_at_every_byte_gives_the_same_result(data: bytes) -> None:
    whole = read_all([data])

    assert read_all([data[at : at + 1] for at in range(len(data))]) == whole
    for at in range(0, len(data), 7):
        assert read_all([data[:at], data[at:]]) == whole


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_difference_from_h11_is_one_and_has_its_reason(name: str) -> None:
    difference = DIFFERENCES[name]
    ours = read_all([difference.example])

    assert len(ours.requests) == 1
    assert h11_reads(difference.example, 1) != list(ours.requests)
    assert difference.applies(difference.example)
    assert len(difference.why) > 20


def test_a_reader_that_overlooks_a_body_is_caught_by_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted twin: a reader blind to Content-Length takes the body for a request of its own."""
    smuggled = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
    data = b"POST /y HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(smuggled), smuggled)
    assert len(check(data).requests) == 1
    monkeypatch.setattr(head, "content_length", lambda _length: 0)

    with pytest.raises(AssertionError):
        check(data)
