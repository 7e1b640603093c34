"""Makes contract values from a caller's arguments, by the service's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

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


def several(name: str, found: object, of: str) -> tuple[Any, ...]:
    """Return the things that were given together; a single one, or nothing at all, is refused by its name."""
    if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping):
        return tuple(found)
    raise Malformed(f"{name} takes a list of {of}, not {in_words(found)}.")


def check_least(name: str, found: object, least: int) -> None:
    """Refuse what is no whole number, or too small a one, by its name."""
    if not isinstance(found, int) or found < least:
        raise Malformed(f"{name} is a whole number from {least} on, not {found!r}.")


def a_text(name: str, found: object) -> str:
    """Return a text as it is; anything else is refused by its name."""
    if isinstance(found, str):
        return found
    raise Malformed(f"{name} is a text, not {in_words(found)}.")


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
