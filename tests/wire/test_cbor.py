"""The closed CBOR subset: one encoding of each value, whatever is not it is refused, and a general library agrees."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.wire import cbor

NUMBERS = st.integers(-(1 << 64), (1 << 64) - 1)
LEAVES = st.one_of(NUMBERS, st.binary(max_size=300), st.text(max_size=80))


def nested(depth: int) -> st.SearchStrategy:
    if depth == 0:
        return LEAVES
    inner = nested(depth - 1)
    keys = st.integers(0, (1 << 64) - 1)
    return st.one_of(LEAVES, st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4))


VALUES = nested(cbor.DEPTH_MAX)


@given(VALUES)
def test_what_is_written_is_read_back(value):
    assert cbor.decode(cbor.encode(value)) == value


@given(VALUES)
def test_a_general_library_reads_the_same_and_writes_the_same_bytes(value):
    data = cbor.encode(value)

    assert cbor2.loads(data) == value
    assert cbor2.dumps(value, canonical=True) == data


@given(st.binary(max_size=64))
def test_bytes_are_canonical_or_refused(data):
    try:
        value = cbor.decode(data)
    except Malformed:
        return
    assert cbor.encode(value) == data


@given(VALUES, st.data())
def test_a_changed_bit_is_refused_or_is_another_value(value, data):
    written = bytearray(cbor.encode(value))
    place = data.draw(st.integers(0, len(written) * 8 - 1))
    written[place // 8] ^= 1 << place % 8
    try:
        read = cbor.decode(bytes(written))
    except Malformed:
        return
    assert cbor.encode(read) == bytes(written) != cbor.encode(value)


@given(VALUES, st.data())
def test_every_truncation_and_every_trailing_byte_is_refused(value, data):
    written = cbor.encode(value)
    cut = data.draw(st.integers(0, len(written) - 1))

    for wrong in (written[:cut], written + b"\x00"):
        with pytest.raises(Malformed):
            cbor.decode(wrong)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty", ""),
        ("number in a byte it does not need", "1817"),
        ("number in two bytes", "1900ff"),
        ("number in four bytes", "1a0000ffff"),
        ("number in eight bytes", "1b00000000ffffffff"),
        ("long length of a short string", "5801aa"),
        ("indefinite array", "9f00ff"),
        ("indefinite bytes", "5f41aaff"),
        ("indefinite map", "bf0000ff"),
        ("reserved length", "1c"),
        ("tag", "c000"),
        ("half float", "f93c00"),
        ("double", "fb3ff0000000000000"),
        ("true", "f5"),
        ("undefined", "f7"),
        ("null where it is not named", "f6"),
        ("null as a key", "a1f600"),
        ("simple value", "f8ff"),
        ("text that is not UTF-8", "61ff"),
        ("text with a lone surrogate", "63eda080"),
        ("keys that descend", "a201000000"),
        ("a key twice", "a200000001"),
        ("a negative key", "a12000"),
        ("a text key", "a1616100"),
        ("an array longer than the data", "9bffffffffffffffff"),
        ("a map longer than the data", "bbffffffffffffffff"),
        ("a string longer than the data", "5bffffffffffffffff"),
        ("seven containers deep", "81" * 7 + "00"),
        ("something after the end", "0000"),
    ],
)
def test_what_a_lax_decoder_would_take_is_refused(name, data):
    with pytest.raises(Malformed):
        cbor.decode(bytes.fromhex(data))


def test_null_is_read_only_where_it_is_named():
    assert cbor.decode(bytes.fromhex("82f600"), nulls=True) == [None, 0]
    with pytest.raises(Malformed):
        cbor.decode(bytes.fromhex("82f600"))


@pytest.mark.parametrize("value", [True, {-1: 0}, {True: 0}, 1 << 64, -(1 << 64) - 1, [[[[[[[0]]]]]]]])
def test_what_is_outside_the_subset_cannot_be_written(value):
    with pytest.raises((TypeError, ValueError)):
        cbor.encode(value)


def test_six_containers_are_read():
    assert cbor.decode(bytes.fromhex("81" * 6 + "00")) == [[[[[[0]]]]]]


@given(st.lists(LEAVES, min_size=3, max_size=20), VALUES)
def test_the_first_items_are_those_of_the_whole_and_what_follows_is_not_read(leaves, rest):
    data = cbor.encode([*leaves, rest])
    cut = data[: len(data) - len(cbor.encode(rest))]

    assert cbor.first_items(data, 3) == leaves[:3]
    assert cbor.first_items(cut + b"\xff", 3) == leaves[:3]


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x83\x01\x80\x01", b"\x98\x1e" + bytes(30), b"\x83\x01\x02", b"\x9f\x01"]
)
def test_what_does_not_begin_with_three_plain_items_is_refused(data):
    with pytest.raises(Malformed):
        cbor.first_items(data, 3)
