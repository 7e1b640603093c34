"""Which bytes a range names, against the slice that says the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.wire.conditions import has_it
from penstock.wire.ranges import Span, content_range, parse_range

_number = st.integers(0, 40)


@given(st.binary(max_size=30), _number, _number)
def test_a_range_is_the_slice_it_names(data: bytes, first: int, last: int) -> None:
    size = len(data)
    for text, wanted in (
        (f"{first}-{last}", data[first : last + 1] if first <= last else b""),
        (f"{first}-", data[first:]),
        (f"-{last}", data[max(0, size - last) :] if last else b""),
    ):
        value = f"bytes={text}".encode()
        if not wanted:
            with pytest.raises(Malformed) as refused:
                parse_range(value, size)
            assert (refused.value.status, refused.value.facts["size"]) == (416, size)
            continue
        span = parse_range(value, size)
        assert span is not None
        assert data[span.start : span.end] == wanted


@given(st.binary(max_size=40), st.integers(0, 1000))
def test_no_header_however_shaped_raises_anything_but_416(value: bytes, size: int) -> None:
    span = status = None
    try:
        span = parse_range(b"bytes=" + value, size)
    except Malformed as refused:
        status = refused.status

    assert status in (None, 416)
    assert span is None or 0 <= span.start < span.end <= size


def test_no_range_another_unit_and_several_ranges_are_the_whole() -> None:
    assert parse_range(None, 10) is None
    assert parse_range(b"pages=1-2", 10) is None
    assert parse_range(b"bytes=1-2, 4-5", 10) is None


def test_content_range_counts_the_last_byte_in() -> None:
    assert content_range(Span(2, 5), 10) == b"bytes 2-4/10"


def test_star_is_only_a_star_alone() -> None:
    assert has_it(b"*", b'"x"')
    assert not has_it(b'*, "y"', b'"x"')
