"""Makes contract values from a caller's arguments, by the service's own rules."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from penstock.kernel.errors import Malformed
from penstock.wire.plain_words import plain_fault

T = TypeVar("T")


def checked(kind: type[T], **fields: object) -> T:
    """Make a contract value; a wrong one is `Malformed` here and never leaves this process."""
    try:
        return msgspec.convert(fields, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise Malformed(plain_fault(str(exc), kind)) from exc


_WORDS: Final[dict[type, str]] = {
    str: "a text",
    bytes: "bytes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    type(None): "None",
}


def in_words(value: object) -> str:
    """Name what an argument is, as the other messages do; what has no plain word is named by its class."""
    return _WORDS.get(type(value)) or f"an object of {type(value).__name__}"
