"""Views as data: the parts of an answer, their sources, and their fallbacks. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from penstock.kernel.errors import Malformed
from penstock.net.calls.origin import parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS_MAX: Final = 8
VIEW_BYTES_MAX: Final = 256 << 10
PARAM_CHARS_MAX: Final = 1024
SOURCES: Final = ("http", "object", "object_info", "topic")
FALLBACKS: Final = ("omit", "default", "stale")
Fallback: TypeAlias = Literal["omit", "default", "stale"]
PartStatus: TypeAlias = Literal["ok", "omitted", "default", "stale"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_DOTS: Final = frozenset((".", ".."))
_PLACE: Final = re.compile(r"\{([a-z][a-z0-9_-]{0,63})\}")


class ViewRefused(ValueError):
    """A view that cannot be served as it is written; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartSpec:
    """One part: a downstream call with its own deadline."""

    name: str
    source: str
    # `{param}` stands for a query parameter of the view.
    target: str
    required: bool = True
    timeout_s: float = 1.0
    fallback: Fallback = "omit"
    # JSON that stands in for the part under `fallback = "default"`.
    default: bytes = b"null"

    def fill(self, params: Mapping[str, str]) -> str:
        """Fill the parameters into the target; in a URL each stays within one segment or value."""
        escape = self.source == "http"
        return _PLACE.sub(lambda m: quote(params[m[1]], safe="") if escape else params[m[1]], self.target)

    def strays(self, params: Mapping[str, str]) -> bool:
        """Tell whether the parameters make a dot segment, which an upstream would take for another path."""
        return self.source == "http" and not _DOTS.isdisjoint(self.fill(params).partition("?")[0].split("/"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSpec:
    """A named answer made of parts."""

    name: str
    parts: tuple[PartSpec, ...]
    params: tuple[str, ...]

    def read(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Check a query: every parameter of the view, and no other."""
        missing = [name for name in self.params if not given.get(name)]
        unknown = sorted(set(given) - set(self.params))
        if missing or unknown:
            wanted = ", ".join(self.params) or "no parameter"
            raise Malformed(f"This view takes {wanted}.", reason="bad_query")
        if any(len(value) > PARAM_CHARS_MAX for value in given.values()):
            raise Malformed(f"A parameter is longer than {PARAM_CHARS_MAX} characters.", reason="bad_query")
        if any(part.strays(given) for part in self.parts):
            raise Malformed("A parameter is no dot segment of a path.", reason="bad_query")
        return given


def read_views(rows: tuple[Mapping[str, Any], ...], *, parts_max: int) -> dict[str, ViewSpec]:
    """Make the views of a configuration, or raise `ViewRefused` with the first thing that is wrong."""
    views: dict[str, ViewSpec] = {}
    for row in rows:
        view = _read_view(row, parts_max)
        if view.name in views:
            raise ViewRefused(f"the view {view.name} is there twice")
        views[view.name] = view
    return views


def _read_view(row: Mapping[str, Any], parts_max: int) -> ViewSpec:
    name = _named(row["name"], "view")
    rows = row["parts"]
    if not 0 < len(rows) <= parts_max:
        raise ViewRefused(f"the view {name} has {len(rows)} parts, not 1 to {parts_max}")
    parts = tuple(_read_part(name, part) for part in rows)
    if len({part.name for part in parts}) != len(parts):
        raise ViewRefused(f"two parts of the view {name} have the same name")
    params = dict.fromkeys(found for part in parts for found in _PLACE.findall(part.target))
    return ViewSpec(name=name, parts=parts, params=tuple(params))


def _read_part(view: str, row: Mapping[str, Any]) -> PartSpec:
    name = _named(row["name"], f"part of the view {view}")
    part = PartSpec(
        name=name,
        source=row["source"],
        target=row["target"],
        required=row["required"],
        timeout_s=row["timeout"],
        fallback=row["fallback"],
        default=_json(row["default"], name),
    )
    _check_target(part)
    return part


def _named(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise ViewRefused(f"{name!r} cannot be the name of a {what}: lower-case letters, digits, - and _")
    return name


def _json(text: str, part: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except msgspec.MsgspecError as exc:
        raise ViewRefused(f"the default of the part {part} is no JSON: {exc}") from exc


def _check_target(part: PartSpec) -> None:
    """Refuse a target whose parameters could choose another host, or leave braces in a URL."""
    if part.source != "http":
        return
    if set("{}") & set(_PLACE.sub("", part.target)):
        raise ViewRefused(f"the target of the part {part.name} has a brace that is no parameter")
    host = re.match("http://[^/?#]*", part.target)
    if host is None or "{" in host[0]:
        raise ViewRefused(f"the target of the part {part.name} is no http:// address with a fixed host")
    try:
        parse_url(_PLACE.sub("x", part.target))
    except Malformed as exc:
        raise ViewRefused(f"the target of the part {part.name} cannot be asked: {exc.detail}") from exc


class PartOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part in the answer: how it went, and its value unless it was left out."""

    status: PartStatus
    latency_ms: float
    reason: str = ""
    value: msgspec.Raw | UnsetType = UNSET


class PartWarning(msgspec.Struct, frozen=True):
    """An optional part that did not come as it should have."""

    part: str
    code: str


class ViewOut(msgspec.Struct, frozen=True):
    """The answer of a view."""

    view: str
    parts: dict[str, PartOut]
    warnings: tuple[PartWarning, ...] = ()
