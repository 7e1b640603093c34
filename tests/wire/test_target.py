"""Request targets: split first, decoded once, everything doubtful refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.wire.target import parse_target, split_path


@pytest.mark.parametrize(
    "raw",
    [
        b"//x", b"/a//b", b"/./a", b"/..", b"/a/../b", b"/%2e%2e", b"/%2E/a", b"/..%2fetc", b"/a%2f..%2fb", b"/%2f",
        b"/%5c", b"/a%5Cb", b"/\\", b"/%00", b"/a%00b", b"/%zz", b"/%2", b"/%", b"/#x", b"/a?b#c", b"/{a}", b"/a|b",
        b"/^", b"/<", b'/"', b"/\xe4", b"/%ff", b"*", b"a", b"", b"?a=b", b"ftp://h/", b"http://u@h/", b"http:///",
        b"/a b",
    ],
)  # fmt: skip
def test_a_target_two_readers_could_take_differently_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        parse_target(raw, "GET")


@pytest.mark.parametrize("tail", [b"[", b"%", b"%2", b" "])
def test_a_long_target_is_judged_in_linear_time(tail: bytes) -> None:
    """A pattern that tries every way to cut the query would not come back from this in a lifetime."""
    for raw in (b"/?" + b"a" * 8000 + tail, b"/" + b"a" * 8000 + tail, b"/?" + b"?a" * 4000 + tail):
        with pytest.raises(Malformed):
            parse_target(raw, "GET")


def test_an_encoded_slash_stays_inside_its_segment() -> None:
    target = parse_target(b"/v1/topics/orders%2Feu/peek?n=1", "GET")

    assert target.segments == ("v1", "topics", "orders/eu", "peek")
    assert target.path == "/v1/topics/orders%2Feu/peek"
    assert target.query == b"n=1"


def test_segments_are_decoded_once_and_not_twice() -> None:
    assert parse_target(b"/%2541", "GET").segments == ("%41",)


def test_a_final_slash_is_a_last_empty_segment_and_the_root_has_none() -> None:
    assert parse_target(b"/", "GET").segments == ()
    assert parse_target(b"/a/", "GET").segments == ("a", "")


def test_absolute_form_keeps_its_authority_for_the_host_check() -> None:
    target = parse_target(b"HTTP://Example:80/a?b", "GET")

    assert (target.authority, target.path, target.query) == (b"example:80", "/a", b"b")


def test_the_asterisk_is_for_options_only() -> None:
    assert parse_target(b"*", "OPTIONS").path == "*"


@given(st.lists(st.text(min_size=1).filter(lambda text: "/" not in text), min_size=1, max_size=4))
def test_no_accepted_path_holds_a_dot_segment_or_a_nul(parts: list[str]) -> None:
    from urllib.parse import quote

    try:
        segments = split_path("/" + "/".join(quote(part, safe="") for part in parts))
    except Malformed:
        assert any(part in {".", ".."} or "\0" in part or "\\" in part for part in parts)
    else:
        assert list(segments) == parts
