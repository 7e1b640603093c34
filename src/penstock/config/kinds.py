"""What a single value may be: each kind reads a TOML value or a text and writes its canonical text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_DURATION = re.compile(r"(\d{1,13})(?:\.(\d{1,3}))?(ms|s|m|h|d)", re.ASCII)
_DURATION_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# A century: far beyond any sensible wait, and small enough that seconds as a float keep every millisecond.
_DURATION_MS_MAX = 36_500 * 86_400_000
_SIZE = re.compile(r"(\d{1,19})(B|KiB|MiB|GiB|TiB)?", re.ASCII)
_SIZE_UNITS_BYTES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_SIZE_BYTES_MAX = 1 << 60
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_FLOAT = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER_MAX = 10**18
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*")
PORT_MAX = 65_535
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class Kind(StrEnum):
    """The kinds of value a setting can hold."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"
    CHOICE = "choice"
    DURATION = "duration"
    SIZE = "size"
    ADDRESS = "address"
    PATH = "path"
    LIST = "list"
    MAP = "map"
    TABLES = "tables"
    SECRET = "secret"  # noqa: S105 the name of a kind, not a password
    SECRETS = "secrets"
    # Tables by a free name: `[interop.providers.github]`.
    NAMED = "named tables"
    # A list of places, `env:NAME` or `file:path`; a secret itself is never written there.
    SECRET_REFS = "secret references"  # noqa: S105 the name of a kind, not a password


class BadValue(ValueError):
    """A value does not fit its kind; the message is the rule it broke."""


class HostPort(NamedTuple):
    """A host and port to listen on or to call; port 0 lets the system choose."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        """Write `host:port`, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Secret:
    """A value that never shows itself: printing, formatting and logging give a placeholder."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Wrap the value; only `reveal` gives it back."""
        self._value = value

    def reveal(self) -> str:
        """Return the value, for the one place that needs it."""
        return self._value

    def __eq__(self, other: object) -> bool:
        """Compare by value, so that a reload can tell a changed secret."""
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        """Hash by value, as equality demands."""
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        """Show that there is a secret, not which."""
        return REDACTED

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        """Refuse to be pickled: a copy on disk or on a pipe is a leak."""
        raise TypeError("a secret is not to be serialised")


REDACTED = "(redacted)"
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^/?#@\s:]*):[^/?#@\s]*@")


def without_password(text: str) -> str:
    """Hide the password of each URL in a text: nobody declares such a setting as a secret."""
    return _PASSWORD_IN_URL.sub(rf"\1:{REDACTED}@", text)


def parse_duration(text: str) -> float:
    """Read `250ms`, `5s`, `10m`, `24h` or `7d` as seconds; a unit is required."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadValue("a duration is a number with its unit: 250ms, 5s, 10m, 24h, 7d")
    whole, fraction, unit = match.groups()
    thousandths = int(whole) * 1_000 + int((fraction or "").ljust(3, "0"))
    millis, rest = divmod(thousandths * _DURATION_UNITS_MS[unit], 1_000)
    if rest:
        raise BadValue("a duration is counted in whole milliseconds")
    if millis > _DURATION_MS_MAX:
        raise BadValue("a duration is at most 36500d")
    return millis / 1_000


def format_duration(seconds: float) -> str:
    """Write seconds in the largest unit that keeps them a whole number; but `60s` and `24h`, as people do."""
    millis = round(seconds * 1_000)
    if millis == 0:
        return "0s"
    unit = next(unit for unit, size in _DURATION_UNITS_MS.items() if millis % size == 0)
    unit = {"1m": "s", "1d": "h"}.get(f"{millis // _DURATION_UNITS_MS[unit]}{unit}", unit)
    return f"{millis // _DURATION_UNITS_MS[unit]}{unit}"


def parse_size(text: str) -> int:
    """Read `64KiB`, `1MiB` or a plain number of bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise BadValue("a size is a number of bytes or one with a unit: 65536, 64KiB, 1MiB, 2GiB")
    size = int(match[1]) * _SIZE_UNITS_BYTES[match[2] or "B"]
    if size > _SIZE_BYTES_MAX:
        raise BadValue(f"a size is at most {format_size(_SIZE_BYTES_MAX)}")
    return size


def format_size(size_bytes: int) -> str:
    """Write bytes in the largest unit that keeps them a whole number; plain bytes have none."""
    for unit, unit_bytes in _SIZE_UNITS_BYTES.items():
        if unit != "B" and size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return str(size_bytes)


def parse_address(text: str) -> HostPort:
    """Read `host:port` or `[ipv6]:port`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    good_port = port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX
    if not (colon and good_port and _is_host(host, bracketed=bracketed)):
        raise BadValue("an address is host:port, 127.0.0.1:5306 or [::1]:5306, with a port from 0 to 65535")
    return HostPort(host, int(port))


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        return ip_address(host).version == (6 if bracketed else 4)
    except ValueError:
        return not bracketed and _HOST_NAME.fullmatch(host) is not None


def _text_only(raw: object, rule: str) -> str:
    if isinstance(raw, str):
        return raw
    raise BadValue(rule)


def _int_value(raw: object) -> int:
    # bool is an int to Python, but `max_conns = true` is a mistake.
    if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < _INTEGER_MAX:
        return raw
    raise BadValue("must be a whole number")


def _int_text(text: str) -> int:
    if _INTEGER.fullmatch(text):
        return int(text)
    raise BadValue("must be a whole number")


def _float_value(raw: object) -> float:
    # The comparison is false for NaN and infinity too.
    if isinstance(raw, (int, float)) and not isinstance(raw, bool) and abs(raw) < _INTEGER_MAX:
        return float(raw)
    raise BadValue("must be a finite number")


def _float_text(text: str) -> float:
    return _float_value(float(text) if _FLOAT.fullmatch(text) else None)


def _bool_value(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    raise BadValue("must be true or false")


def _bool_text(text: str) -> bool:
    word = text.lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise BadValue("must be true or false")


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    raise BadValue("must be text without control characters")


def _size_value(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return parse_size(str(raw) if 0 <= raw <= _SIZE_BYTES_MAX else "")
    return parse_size(_text_only(raw, "must be a size: 65536, 64KiB, 1MiB"))


def _path_text(text: str) -> Path:
    if not text:
        raise BadValue("must be a path")
    return Path(_printable(text))


def _from_text(parse: Callable[[str], T], noun: str) -> Callable[[object], T]:
    def read(raw: object) -> T:
        return parse(_text_only(raw, f"must be {noun}, in quotes"))

    return read


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of scalar is read from TOML, read from a text, and written."""

    value: Callable[[object], object]
    text: Callable[[str], object]
    show: Callable[..., str]


SCALARS: Mapping[Kind, Codec] = {
    Kind.INT: Codec(_int_value, _int_text, str),
    Kind.FLOAT: Codec(_float_value, _float_text, repr),
    Kind.BOOL: Codec(_bool_value, _bool_text, lambda value: "true" if value else "false"),
    Kind.STR: Codec(_from_text(_printable, "a text"), _printable, str),
    Kind.CHOICE: Codec(_from_text(_printable, "a text"), _printable, str),
    Kind.DURATION: Codec(_from_text(parse_duration, "a duration such as 5s"), parse_duration, format_duration),
    Kind.SIZE: Codec(_size_value, parse_size, format_size),
    Kind.ADDRESS: Codec(_from_text(parse_address, "an address host:port"), parse_address, str),
    Kind.PATH: Codec(_from_text(_path_text, "a path"), _path_text, str),
}
