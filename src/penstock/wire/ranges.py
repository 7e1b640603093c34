"""Which part of an object a request asks for: one range of bytes, or the whole (RFC 9110, 14). Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.kernel.errors import Malformed

_UNIT: Final = b"bytes="
_RANGE: Final = re.compile(rb"(\d{0,19})-(\d{0,19})")
_RANGE_NOT_SATISFIABLE: Final = 416


class Span(NamedTuple):
    """Bytes from `start` up to, not including, `end`."""

    start: int
    end: int


def parse_range(value: bytes | None, size: int) -> Span | None:
    """Return the one range asked for; None for the whole: no range, another unit, or several ranges.

    A range that cannot be read or has no byte in the object is Malformed with status 416.
    """
    if value is None or not value.lower().startswith(_UNIT) or b"," in value:
        return None
    found = _RANGE.fullmatch(value[len(_UNIT) :].strip())
    if found is None or found[0] == b"-":
        raise _unsatisfiable("A range is written a-b, a- or -n.", size)
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end or (first and last and int(last) < int(first)):
        raise _unsatisfiable(f"The object has {size} bytes.", size)
    return Span(start, end)


def content_range(span: Span, size: int) -> bytes:
    """Say which part of the object an answer is."""
    return b"bytes %d-%d/%d" % (span.start, span.end - 1, size)


def _unsatisfiable(detail: str, size: int) -> Malformed:
    return Malformed(detail, status=_RANGE_NOT_SATISFIABLE, reason="bad_range", size=size)
