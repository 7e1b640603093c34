"""Errors cross the wire and come back as the class they were, with status, detail and facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import errors
from penstock.kernel.errors import DownstreamUnavailable, Lagging, OverLimit, PenstockError, Timeout
from penstock.wire.oap.problem import decode_problem, encode_problem


def sample(kind: type[PenstockError]) -> PenstockError:
    if kind is Timeout:
        return Timeout("kms_sign", budget_s=3.0, corr="x")
    if kind is Lagging:
        return Lagging(7)
    if kind is OverLimit:
        return OverLimit("too much", limit="body", size=9)
    return kind("what happened", reason="because", n=3)


@pytest.mark.parametrize("kind", errors.taxonomy(), ids=lambda kind: kind.__name__)
def test_every_class_comes_back_as_itself(kind: type[PenstockError]) -> None:
    sent = sample(kind)

    got = decode_problem(sent.status, encode_problem(sent))

    assert type(got) is kind
    assert (got.status, got.detail, got.facts, got.code) == (sent.status, sent.detail, sent.facts, sent.code)
    assert str(got) == str(sent)


def test_derived_attributes_come_back_too() -> None:
    slow = decode_problem(504, encode_problem(Timeout("fsync", budget_s=0.25)))
    large = decode_problem(507, encode_problem(OverLimit("full", limit="disk", status=507)))

    assert isinstance(slow, Timeout)
    assert (slow.op, slow.budget_s) == ("fsync", 0.25)
    assert isinstance(large, OverLimit)
    assert (large.limit, large.status) == ("disk", 507)


def test_class_of_a_newer_peer_falls_back_to_its_code() -> None:
    class BusyShard(errors.Busy):
        """Not known to this build."""

    got = decode_problem(429, encode_problem(BusyShard("full")))

    assert type(got) is errors.Busy


def test_fact_that_msgpack_cannot_say_crosses_as_text() -> None:
    got = decode_problem(409, encode_problem(errors.Conflict("c", what={1, 2}, big=1 << 80)))

    assert got.facts["big"] == str(1 << 80)


@given(st.binary(max_size=64), st.integers(0, 0xFFFF))
def test_unreadable_problem_blames_the_downstream(payload: bytes, status: int) -> None:
    got = decode_problem(status, payload)

    assert isinstance(got, PenstockError)
    assert decode_problem(500, b"\xc1").status == 502
    assert isinstance(decode_problem(500, b"\xc1"), DownstreamUnavailable)
