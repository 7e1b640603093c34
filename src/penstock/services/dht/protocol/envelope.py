"""The envelope around every message: `{0 ver, 1 opcode, 2 corr_id, 3 ts, 4 hops_seen, 5 flags, 6 payload}`. Pure.

The payload is a byte string of its own CBOR, so that a reader who does not know an opcode still finds the corr_id.
Unknown fields of the envelope are ignored.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from penstock.kernel.errors import Malformed
from penstock.services.dht.protocol.frames import frame
from penstock.wire import cbor

VERSION: Final = 1
REQ: Final = 1
RESP: Final = 2
HEDGE: Final = 4
_FLAGS: Final = REQ | RESP | HEDGE
_ONE_WAY: Final = frozenset({REQ, RESP, REQ | HEDGE, RESP | HEDGE})
# How many bytes a longer number has, and the least number that needs them.
_SIZES: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_LEAST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}


class Opcode(enum.IntEnum):
    """What a message is about."""

    FIND_NODE = 1
    FIND_VALUE = 2
    PROVIDE = 3
    STORE = 4
    PING = 5
    HELLO = 6
    DOWN_HINT = 7


class DhtEnvelope(NamedTuple):
    """A message as it came."""

    version: int
    opcode: int
    corr_id: int
    ts: int
    hops_seen: int
    flags: int
    payload: bytes


def encode_envelope(opcode: int, corr_id: int, flags: int, payload: bytes, ts: int) -> bytes:
    """Write a framed message. The numbers are written here; the payload is put behind them as it is."""
    out = bytearray(b"\xa7\x00\x01\x01")
    out.append(opcode)
    out.append(2)
    _uint(out, 0x00, corr_id)
    out.append(3)
    _uint(out, 0x00, ts)
    out += b"\x04\x00\x05"
    out.append(flags)
    out.append(6)
    _uint(out, 0x40, len(payload))
    out += payload
    return frame(bytes(out))


def _uint(out: bytearray, major: int, number: int) -> None:
    if number < 24:
        out.append(major | number)
        return
    power = 0 if number < 1 << 8 else 1 if number < 1 << 16 else 2 if number < 1 << 32 else 3
    out.append(major | 24 + power)
    out += number.to_bytes(1 << power, "big")


def array_head(count: int) -> bytes:
    """Write the head of an array whose items are concatenated behind it."""
    out = bytearray()
    _uint(out, 0x80, count)
    return bytes(out)


def decode_envelope(body: bytes) -> DhtEnvelope:
    """Read an envelope; whatever is not one is Malformed."""
    return _decode_usual(body) or _decode_any(body)


def _decode_usual(body: bytes) -> DhtEnvelope | None:
    """Read an envelope with exactly the known fields; anything else is left to the general decoder."""
    if body[:4] != b"\xa7\x00\x01\x01" or len(body) < 16 or not 0 < body[4] < 24:
        return None
    at, numbers = 5, []
    for field in (2, 3, 4, 5):
        if at + 2 > len(body) or body[at] != field:
            return None
        first = body[at + 1]
        size = 0 if first < 24 else _SIZES.get(first, 0)
        if (size == 0 and first >= 24) or at + 2 + size > len(body):
            return None
        number = int.from_bytes(body[at + 2 : at + 2 + size], "big") if size else first
        if size and number < _LEAST[first]:
            return None
        numbers.append(number)
        at += 2 + size
    payload = _last_bytes(body, at)
    corr_id, ts, hops_seen, flags = numbers
    if payload is None or not corr_id or flags not in _ONE_WAY:
        return None
    return DhtEnvelope(VERSION, body[4], corr_id, ts, hops_seen, flags, payload)


def _last_bytes(body: bytes, at: int) -> bytes | None:
    """Return the byte string in field 6, if it is the last thing and in its shortest form."""
    if body[at : at + 1] != b"\x06" or at + 1 >= len(body):
        return None
    first = body[at + 1] - 0x40
    size = 0 if 0 <= first < 24 else _SIZES.get(first, -1)
    if size < 0:
        return None
    start = at + 2 + size
    length = int.from_bytes(body[at + 2 : start], "big") if size else first
    if start + length != len(body) or (size and length < _LEAST[first]):
        return None
    return body[start:]


def _decode_any(body: bytes) -> DhtEnvelope:
    fields = cbor.decode(body)
    if type(fields) is not dict:
        raise _bad("an envelope is a map")
    version, opcode, corr_id, ts, hops_seen, flags = (_unsigned(fields.get(number)) for number in range(6))
    payload = fields.get(6)
    if type(payload) is not bytes:
        raise _bad("an envelope has a payload")
    envelope = DhtEnvelope(version, opcode, corr_id, ts, hops_seen, flags, payload)
    if not envelope.corr_id or envelope.flags & ~_FLAGS or (envelope.flags & REQ != 0) == (envelope.flags & RESP != 0):
        raise _bad("an envelope has a corr_id and is either a request or an answer")
    return envelope


def _unsigned(value: object) -> int:
    if type(value) is not int or value < 0:
        raise _bad("an envelope's fields 0 to 5 are unsigned numbers")
    return value


def _bad(why: str) -> Malformed:
    return Malformed(f"This is no DHT message: {why}.", reason="bad_envelope")
