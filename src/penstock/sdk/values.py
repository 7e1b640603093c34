"""Makes contract values from a caller's arguments, by the service's own rules."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.kernel.errors import Malformed
from penstock.wire.plain_words import plain_fault

T = TypeVar("T")


def checked(kind: type[T], **fields: object) -> T:
    """Make a contract value; a wrong one is `Malformed` here and never leaves this process."""
    try:
        return msgspec.convert(fields, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise Malformed(plain_fault(str(exc))) from exc
