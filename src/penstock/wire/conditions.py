"""What a client says it has already: If-None-Match and If-Range (RFC 9110, 13). Pure.

An object never changes, so its tag is its address; a weak tag and a date never vouch for bytes.
"""

from __future__ import annotations

from typing import Final

_WEAK: Final = b"W/"


def tag_of(address: str) -> bytes:
    """Return the strong entity tag of an object."""
    return b'"%b"' % address.encode("ascii")


def has_it(if_none_match: bytes | None, tag: bytes) -> bool:
    """Tell whether the client holds this object: the comparison is weak, `*` is any object."""
    if if_none_match is None:
        return False
    given = [each.strip() for each in if_none_match.split(b",")]
    return given == [b"*"] or any(each.removeprefix(_WEAK) == tag for each in given)


def range_holds(if_range: bytes | None, tag: bytes) -> bool:
    """Tell whether a range may be sent: the part the client holds is of this very object."""
    return if_range is None or if_range.strip() == tag
