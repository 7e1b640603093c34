"""Base64 is accepted in one spelling only: a second one would let the same signed request be sent in another form."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.strict_base64 import decode_base64


@given(st.binary(max_size=64))
def test_what_was_encoded_is_decoded(data: bytes) -> None:
    assert decode_base64(base64.b64encode(data)) == data


@given(st.binary(max_size=16).map(base64.b64encode) | st.text("AQg/+=\n -_B", max_size=12).map(str.encode))
def test_nothing_but_the_canonical_spelling_is_decoded(text: bytes) -> None:
    data = decode_base64(text)

    assert data is None or base64.b64encode(data) == text


@pytest.mark.parametrize(
    "text", [b"Zg", b"Zg=", b"Zh==", b"Zg==\n", b" Zg==", b"Z g==", b"Zg==Zg==", b"Zg-_", b"=", b"\xff"]
)
def test_other_spellings_are_refused(text: bytes) -> None:
    assert decode_base64(text) is None
