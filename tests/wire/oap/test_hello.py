"""HELLO: the opener's name, the answerer's limits, and a max_frame that only goes down."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.wire.oap import frame as oap
from penstock.wire.oap.frame import Frame, decode_all, encode
from penstock.wire.oap.hello import (
    Hello,
    Welcome,
    hello_frame,
    lowered,
    read_hello,
    read_welcome,
    welcome_frame,
)


def test_hello_is_the_published_vector() -> None:
    want = (
        "000000360001000100000000000000000000000000000000000000aa0000000000000000002a7b227561223a2273646b2f302e31227d"
    )

    assert encode(hello_frame(Hello(ua="sdk/0.1"), 42, tenant_id=0xAA)).hex() == want
    assert read_hello(decode_all(bytes.fromhex(want))[0]) == Hello(ua="sdk/0.1")


def test_welcome_states_the_five_limits() -> None:
    frame = welcome_frame(Welcome(), 42)

    assert list(msgspec.json.decode(frame.payload)) == [
        "max_frame",
        "max_inflight",
        "flags_supported",
        "versions",
        "transports",
    ]
    assert (frame.flags, frame.code, frame.corr_id) == (oap.RESP, 200, 42)
    assert read_welcome(frame).max_inflight == 64


def test_hello_from_a_newer_peer_is_understood() -> None:
    assert read_hello(Frame(oap.REQ, 1, payload=b'{"ua":"x","pq":true}')) == Hello(ua="x")


@given(st.lists(st.one_of(st.none(), st.integers(16 << 10, 1 << 20)), max_size=6))
def test_max_frame_only_goes_down(asked: list[int | None]) -> None:
    limit, seen = 1 << 20, [1 << 20]
    for max_frame in asked:
        limit = lowered(limit, Hello(max_frame=max_frame))
        seen.append(limit)

    assert seen == sorted(seen, reverse=True)
    assert limit == min([1 << 20, *(a for a in asked if a is not None)])


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"\xff", b'{"ua":1}', b'{"max_frame":37}', b'{"max_frame":1048577}', b'{"ua":"' + b"x" * 257 + b'"}'],
)
def test_unreadable_hello_is_400(payload: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        read_hello(Frame(oap.REQ, 1, payload=payload))

    assert caught.value.facts["reason"] == "bad_hello"


@pytest.mark.parametrize("frame", [Frame(oap.RESP, 1, payload=b"{}"), Frame(oap.REQ, 1, app_proto_id=1, payload=b"{}")])
def test_hello_is_a_control_request(frame: Frame) -> None:
    with pytest.raises(Malformed):
        read_hello(frame)


def test_peer_of_another_version_is_refused() -> None:
    with pytest.raises(Malformed, match="OAP/1"):
        read_welcome(welcome_frame(Welcome(versions=(2,)), 1))
