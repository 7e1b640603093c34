"""Bytes from outside on a terminal: shown only if they hold no control characters."""

from __future__ import annotations

import sys
from typing import BinaryIO, Final

_SHOWN_BYTES: Final = 64
_TERMINAL_CHARS: Final = 2_000
_FINE: Final = frozenset("\n\t")


class BinaryOnTerminal(Exception):
    """These bytes would garble the terminal."""


def as_text(data: bytes) -> str | None:
    """Return the bytes as text, or None if they hold anything that a terminal could act on."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(char in _FINE or char.isprintable() for char in text) else None


def shown(data: bytes) -> str:
    """Return something readable for any bytes: the text itself, or the beginning in hexadecimal."""
    text = as_text(data)
    if text is not None:
        return text
    more = " ..." if len(data) > _SHOWN_BYTES else ""
    return f"<{len(data)} bytes of binary> {data[:_SHOWN_BYTES].hex(' ')}{more}"


def glimpse(data: bytes, *, full: bool) -> str:
    """Return something readable; on a terminal only the beginning of what is long, unless `full` is asked for."""
    text = shown(data)
    if full or len(text) <= _TERMINAL_CHARS or not sys.stdout.isatty():
        return text
    return f"{text[:_TERMINAL_CHARS]}\n... ({len(data)} bytes in all; --full shows them)"


def printable(text: str) -> str:
    """Return text whose control characters are written out: names and reasons come from elsewhere too."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def write_raw(data: bytes, out: BinaryIO | None = None) -> None:
    """Write bytes as they are; onto a terminal only if they are text."""
    if out is None and sys.stdout.isatty() and as_text(data) is None:
        raise BinaryOnTerminal("that is binary: redirect it, name a file by -o, or use --json")
    stream = sys.stdout.buffer if out is None else out
    stream.write(data)
    stream.flush()
