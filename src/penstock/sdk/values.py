"""Makes contract values from a caller's arguments, by the service's own rules."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from penstock.kernel.errors import Malformed

T = TypeVar("T")

_OUT_OF_RANGE: Final = re.compile(r"Expected `\w+` (of length )?([<>]=) (\d+) - at `\$\.([\w.\[\]]+)`")
_OUT_OF_PATTERN: Final = re.compile(r"Expected `str` matching regex '\^?(\[[^]]+\])[^']*' - at `\$\.([\w.\[\]]+)`")


def checked(kind: type[T], **fields: object) -> T:
    """Make a contract value; a wrong one is `Malformed` here and never leaves this process."""
    try:
        return msgspec.convert(fields, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise Malformed(_plainly(str(exc))) from exc


def _plainly(said: str) -> str:
    """Return a broken rule as a sentence about the caller's argument."""
    if found := _OUT_OF_RANGE.fullmatch(said):
        unit = " characters" if found[1] else ""
        return f"{found[4]} must be at {'most' if found[2] == '<=' else 'least'} {found[3]}{unit}."
    if found := _OUT_OF_PATTERN.fullmatch(said):
        return f"{found[2]} may hold only the characters {found[1]}."
    return said
