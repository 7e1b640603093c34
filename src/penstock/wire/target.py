"""Request targets: checked against RFC 3986, split on `/` first, each segment then decoded once.

Routing, policy, caveats and upstreams all see this one result, so none of them can be talked into another reading.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from penstock.kernel.errors import Malformed

# One character class each and no repetition inside a repetition: the time is linear in the target's length.
_PATH_CHARS: Final = rb"A-Za-z0-9\-._~!$&'()*+,;=:@/%"
_ORIGIN_FORM: Final = re.compile(rb"(/[%b]*)(?:\?([%b?]*))?" % (_PATH_CHARS, _PATH_CHARS))
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ABSOLUTE_FORM: Final = re.compile(rb"(?i:https?)://([^/?#@]+)([/?].*)?")
_DOTS: Final = frozenset({"", ".", ".."})


class Target:
    """A request target that passed every check; never changed after it is made."""

    __slots__ = ("authority", "path", "query", "raw", "segments")

    def __init__(self, raw: bytes, path: str, segments: tuple[str, ...], query: bytes) -> None:
        """Hold one reading of the target; `path` stays undecoded, `segments` are decoded."""
        self.raw = raw
        self.path = path
        self.segments = segments
        self.query = query
        # Absolute-form only: it has to equal Host, which is not known yet when the target is parsed.
        self.authority: bytes | None = None


def parse_target(raw: bytes, method: str) -> Target:
    """Read origin-form, absolute-form, or `*` with OPTIONS; everything else is malformed."""
    if raw == b"*" and method == "OPTIONS":
        return Target(raw, "*", (), b"")
    authority, origin = _split_authority(raw)
    match = _ORIGIN_FORM.fullmatch(origin)
    if match is None or _BAD_PERCENT.search(origin) is not None:
        raise Malformed("The request target is not a path and query as RFC 3986 writes them.")
    path = match[1].decode("ascii")
    target = Target(raw, path, split_path(path), match[2] or b"")
    target.authority = authority
    return target


def _split_authority(raw: bytes) -> tuple[bytes | None, bytes]:
    """Take `http://authority` off an absolute-form target; userinfo and other schemes do not match."""
    if raw.startswith(b"/"):
        return None, raw
    match = _ABSOLUTE_FORM.fullmatch(raw)
    if match is None:
        raise Malformed("The request target must be a path, or a URL of this host.")
    rest = match[2] or b"/"
    return match[1].lower(), rest if rest.startswith(b"/") else b"/" + rest


def split_path(path: str) -> tuple[str, ...]:
    """Split first, decode each segment once; `/` alone has no segments, a last empty one stands for a final slash."""
    if path == "/":
        return ()
    pieces = path[1:].split("/")
    if "" in pieces[:-1]:
        raise Malformed("The path has an empty segment.")
    return tuple([_decode_segment(piece) for piece in pieces])


def _decode_segment(piece: str) -> str:
    if "%" not in piece:
        if piece in {".", ".."}:
            raise Malformed("The path has a dot segment.")
        return piece
    try:
        segment = unquote_to_bytes(piece).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Malformed("A path segment is not UTF-8 once it is decoded.") from exc
    _check_decoded(segment)
    return segment


def _check_decoded(segment: str) -> None:
    """Refuse what a file system, a proxy or a log could read as something else than one name.

    An encoded slash inside a name stays allowed (a topic may hold one), but no part between slashes may be
    empty or dots: `%2e%2e`, `..%2fetc` and `%2f` are refused, `orders%2Feu` is not.
    """
    if "\0" in segment or "\\" in segment:
        raise Malformed("A path segment holds a NUL or a backslash.")
    if not _DOTS.isdisjoint(segment.split("/")):
        raise Malformed("A path segment decodes to an empty or dot segment.")
