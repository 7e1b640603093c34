"""Canonical CBOR for a closed subset: what signed things are made of. Pure.

Unsigned and negative integers of 64 bits, byte and text strings, arrays, maps with ascending unsigned keys; shortest
form, definite lengths, at most six containers deep, null only where the caller names it, nothing after the end. There
is one encoding of each value, and whatever is not that encoding is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, Union, cast

from penstock.kernel.errors import Malformed

Value: TypeAlias = Union[int, bytes, str, "list[Value]", "dict[int, Value]", None]
Encodable: TypeAlias = Union[int, bytes, str, "Sequence[Encodable]", "Mapping[int, Encodable]", None]

DEPTH_MAX: Final = 6
_NULL: Final = 0xF6
# The least number that needs an argument of 1, 2, 4 or 8 bytes.
_LEAST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
_UINT64: Final = 1 << 64


def encode(value: Encodable) -> bytes:
    """Write a value; one that is outside the subset is a bug of the caller."""
    out = bytearray()
    _write(out, value, 0)
    return bytes(out)


def _write(out: bytearray, value: Encodable, depth: int) -> None:
    # By exact type: a boolean is no integer here, and looking a type up is cheaper than asking for its kind.
    kind = type(value)
    if kind is str:
        data = cast("str", value).encode("utf-8")
        _head(out, 0x60, len(data))
        out += data
    elif kind is int:
        number = cast("int", value)
        _head(out, 0x00 if number >= 0 else 0x20, number if number >= 0 else -1 - number)
    elif kind is bytes:
        _head(out, 0x40, len(cast("bytes", value)))
        out += cast("bytes", value)
    elif kind is list or kind is tuple:
        _write_array(out, cast("Sequence[Encodable]", value), _deeper(depth))
    elif kind is dict:
        _write_map(out, cast("Mapping[int, Encodable]", value), _deeper(depth))
    elif value is None:
        out.append(_NULL)
    else:
        raise TypeError(f"there is no {kind.__name__} in this subset")


def _deeper(depth: int) -> int:
    if depth >= DEPTH_MAX:
        raise ValueError(f"more than {DEPTH_MAX} containers deep")
    return depth + 1


def _write_array(out: bytearray, items: Sequence[Encodable], depth: int) -> None:
    _head(out, 0x80, len(items))
    for item in items:
        _write(out, item, depth)


def _write_map(out: bytearray, pairs: Mapping[int, Encodable], depth: int) -> None:
    _head(out, 0xA0, len(pairs))
    for key in sorted(pairs):
        if type(key) is not int or key < 0:
            raise TypeError("the keys of a map are unsigned integers")
        _head(out, 0x00, key)
        _write(out, pairs[key], depth)


def _head(out: bytearray, major: int, number: int) -> None:
    if number < 24:
        out.append(major | number)
        return
    if number >= _UINT64:
        raise ValueError("an integer does not fit 64 bits")
    power = 0 if number < 1 << 8 else 1 if number < 1 << 16 else 2 if number < 1 << 32 else 3
    out.append(major | 24 + power)
    out += number.to_bytes(1 << power, "big")


def decode(data: bytes, *, nulls: bool = False) -> Value:
    """Read one value that fills `data` exactly, in its one encoding; anything else is `Malformed`."""
    value, end = _item(data, 0, 0, nulls)
    if end != len(data):
        raise _bad("something follows the value")
    return value


def first_items(data: bytes, count: int) -> list[Value]:
    """Read the first items of a short list or map, which have to be numbers, bytes or texts; the rest stays unread.

    For a look before the whole is worth reading: what it costs does not grow with the data.
    """
    if not data or data[0] >> 5 not in (4, 5) or data[0] & 0x1F >= 24:
        raise _bad("it is no short list or map")
    items: list[Value] = []
    at = 1
    for _ in range(count):
        if at >= len(data) or data[at] >> 5 > 3:
            raise _bad("it begins with other items")
        item, at = _item(data, at, DEPTH_MAX, nulls=False)
        items.append(item)
    return items


def _item(data: bytes, at: int, depth: int, nulls: bool) -> tuple[Value, int]:  # noqa: FBT001
    if at >= len(data):
        raise _bad("it ends too early")
    first = data[at]
    major, number = first >> 5, first & 0x1F
    at += 1
    if number >= 24 and major < 6:
        number, at = _long(data, at, number)
    if major == 3:
        end = at + number
        return _text(_cut(data, at, end)), end
    if major == 2:
        end = at + number
        return _cut(data, at, end), end
    if major == 0:
        return number, at
    if major == 1:
        return -1 - number, at
    if major >= 6:
        if first == _NULL and nulls:
            return None, at
        raise _bad("a tag, float or simple value is not allowed here")
    return _container(data, at, number, depth, nulls, is_map=major == 5)


def _long(data: bytes, at: int, power: int) -> tuple[int, int]:
    """Read a number that has bytes of its own, in its shortest form only."""
    if power > 27:
        raise _bad("a length is indefinite")
    end = at + (1 << power - 24)
    number = int.from_bytes(_cut(data, at, end), "big")
    if number < _LEAST[power]:
        raise _bad("a number is not in its shortest form")
    return number, end


def _cut(data: bytes, at: int, end: int) -> bytes:
    if end > len(data):
        raise _bad("it ends too early")
    return data[at:end]


def _container(  # noqa: PLR0913 - one recursive descent, handed down by position
    data: bytes,
    at: int,
    count: int,
    depth: int,
    nulls: bool,  # noqa: FBT001
    *,
    is_map: bool,
) -> tuple[Value, int]:
    if depth >= DEPTH_MAX:
        raise _bad("it is nested too deep")
    # Every element takes a byte at least: a length that cannot be true is refused before anything is made for it.
    if count > len(data) - at:
        raise _bad("it ends too early")
    return (_map if is_map else _array)(data, at, count, depth + 1, nulls)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise _bad("a text is not UTF-8") from exc


def _array(data: bytes, at: int, count: int, depth: int, nulls: bool) -> tuple[Value, int]:  # noqa: FBT001
    items: list[Value] = []
    end = len(data)
    for _ in range(count):
        # Most items are short texts: they are read here, without three calls for each.
        first = data[at] if at < end else 0
        if 0x60 <= first < 0x78 and (after := at + first - 0x5F) <= end:
            items.append(_text(data[at + 1 : after]))
            at = after
            continue
        item, at = _item(data, at, depth, nulls)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, count: int, depth: int, nulls: bool) -> tuple[Value, int]:  # noqa: FBT001
    pairs: dict[int, Value] = {}
    last = -1
    for _ in range(count):
        key, at = _item(data, at, depth, nulls=False)
        if type(key) is not int or key <= last:
            raise _bad("the keys of a map are not ascending unsigned integers")
        last = key
        pairs[key], at = _item(data, at, depth, nulls)
    return pairs, at


def _bad(why: str) -> Malformed:
    return Malformed(f"This is not canonical CBOR: {why}.", reason="bad_cbor")
