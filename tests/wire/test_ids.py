"""Identifiers as text: UUIDv7 and b3 addresses."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.wire.ids import address_of, format_address, parse_address, uuid7, uuid7_ms

times = st.integers(0, (1 << 48) - 1)
randoms = st.integers(0, (1 << 74) - 1)


def test_uuid7_equals_the_published_example() -> None:
    # RFC 9562 A.6: unix_ts_ms 0x017F22E279B0, rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F.
    assert uuid7(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(times, randoms)
def test_uuid7_is_read_back_by_the_standard_library(ms: int, bits: int) -> None:
    text = uuid7(ms, bits)

    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert uuid7_ms(text) == ms


@given(times, randoms, times, randoms)
def test_uuid7_sorts_by_time_then_random_bits(ms_a: int, bits_a: int, ms_b: int, bits_b: int) -> None:
    assert (uuid7(ms_a, bits_a) < uuid7(ms_b, bits_b)) == ((ms_a, bits_a) < (ms_b, bits_b))


@pytest.mark.parametrize(("ms", "bits"), [(-1, 0), (1 << 48, 0), (0, -1), (0, 1 << 74)])
def test_uuid7_refuses_what_does_not_fit(ms: int, bits: int) -> None:
    with pytest.raises(ValueError, match="fit"):
        uuid7(ms, bits)


@pytest.mark.parametrize(
    "text", ["", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "x"]
)
def test_other_text_is_no_uuid7(text: str) -> None:
    with pytest.raises(Malformed):
        uuid7_ms(text)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (b"hello world", "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24"),
        (b"foobar", "aa51dcd43d5c6c5203ee16906fd6b35db298b9b2e1de3fce81811d4806b76b7d"),
        (bytes(1 << 20), "488de202f73bd976de4e7048f4e1f39a776d86d582b7348ff53bf432b987fca8"),
    ],
)
def test_address_of_known_bytes(data: bytes, digest: str) -> None:
    assert address_of(data) == "b3:" + digest
    assert format_address(bytes.fromhex(digest)) == "b3:" + digest
    assert parse_address("b3:" + digest) == "b3:" + digest


@pytest.mark.parametrize(
    "text", ["", "b3:", "b3:" + "0" * 63, "b3:" + "0" * 65, "b3:" + "A" * 64, "B3:" + "0" * 64, "0" * 64]
)
def test_address_is_accepted_only_in_its_one_form(text: str) -> None:
    for wrong in (text, text + "\n", " " + text):
        with pytest.raises(Malformed) as caught:
            parse_address(wrong)
        assert caught.value.facts["reason"] == "bad_address"


def test_digest_of_another_length_is_a_bug() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        format_address(b"short")
