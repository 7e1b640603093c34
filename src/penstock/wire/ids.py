"""Names of things as text: UUIDv7 from a time and random bits, and `b3:` content addresses. Pure."""

from __future__ import annotations

import re
from typing import Final, NewType

from blake3 import blake3

from penstock.kernel.errors import Malformed

Address = NewType("Address", str)
"""`b3:` and 64 lower-case hex digits: the BLAKE3 digest of the bytes it names."""

UUID7_RANDOM_BITS: Final = 74
ADDRESS_CHARS: Final = 67

_ADDRESS: Final = re.compile(r"b3:[0-9a-f]{64}", re.ASCII)
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)


def uuid7(unix_ms: int, random_bits: int) -> str:
    """Format a UUIDv7 (RFC 9562) from a Unix time in milliseconds and 74 random bits; sorts by time as text."""
    if not 0 <= unix_ms < 1 << 48:
        raise ValueError(f"{unix_ms} ms does not fit 48 bits")
    if not 0 <= random_bits < 1 << UUID7_RANDOM_BITS:
        raise ValueError(f"random bits do not fit {UUID7_RANDOM_BITS}")
    value = unix_ms << 80 | 7 << 76 | (random_bits >> 62) << 64 | 2 << 62 | random_bits & (1 << 62) - 1
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def uuid7_ms(text: str) -> int:
    """Read the Unix time in milliseconds out of a UUIDv7."""
    if _UUID7.fullmatch(text) is None:
        raise Malformed("This is not a UUIDv7 in lower-case text form.", reason="bad_uuid7")
    return int(text[:8] + text[9:13], 16)


def parse_address(text: str) -> Address:
    """Accept exactly `b3:` + 64 lower-case hex digits; nothing is normalised."""
    if _ADDRESS.fullmatch(text) is None:
        raise Malformed("An address is b3: and 64 lower-case hex digits.", reason="bad_address")
    return Address(text)


def format_address(digest: bytes) -> Address:
    """Write a 32-byte digest as an address."""
    if len(digest) != blake3.digest_size:
        raise ValueError(f"a digest has {blake3.digest_size} bytes, not {len(digest)}")
    return Address("b3:" + digest.hex())


def address_of(data: bytes | bytearray | memoryview) -> Address:
    """Name these bytes by their BLAKE3 digest."""
    return Address("b3:" + blake3(data).hexdigest())
