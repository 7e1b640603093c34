"""Configured reverse-proxy routes as data. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from penstock.kernel.errors import Malformed
from penstock.net.calls.origin import parse_url
from penstock.services.omnigate.proxy.headers import may_be_allowed
from penstock.wire.http1.head import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

Forward: TypeAlias = Literal["none", "identity", "token"]
# What a route may demand of a capability: the attributes a request to it has.
REQUIRED_ATTRIBUTES: Final = ("op", "topic", "tenant")
_FIELD: Final = re.compile(rb"[a-z0-9!#$%&'*+.^`|~-]{1,64}")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
# The gateway's own paths; a configured route may not stand in front of them.
OWN_PREFIXES: Final = frozenset(
    (
        ("v1", "o"),
        ("v1", "mailbox"),
        ("v1", "passport"),
        ("v1", "dht"),
        ("v1", "webhooks"),
        ("v1", "view"),
        ("v1", "keys"),
        ("webhooks",),
        ("put",),
        ("o",),
    )
)
_OWN_PAGES: Final = frozenset(("healthz", "readyz", "version", "openapi.json"))


class RouteRefused(ValueError):
    """A route that cannot be served as it is written; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyRoute:
    """One configured route: what it takes, and where that goes."""

    prefix: tuple[str, ...]
    upstreams: tuple[str, ...]
    methods: tuple[str, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    class_name: str = ""
    # (attribute, value) pairs a capability must cover; empty means open to anyone.
    require: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 5.0
    retry: bool = True
    hedge: bool = False
    strip_prefix: bool = False
    forward: Forward = "none"
    tags: frozenset[str] = frozenset()
    # Fields that speak of who asks and are passed on all the same, in lower case.
    allow_headers: frozenset[bytes] = frozenset()

    @property
    def name(self) -> str:
        """Name the route in metrics and errors: its prefix, which an operator chose."""
        return "/" + "/".join(self.prefix)


def read_routes(rows: tuple[Mapping[str, Any], ...]) -> tuple[ProxyRoute, ...]:
    """Make the routes of a configuration, or raise `RouteRefused` with the first thing that is wrong."""
    routes = tuple(_read_route(row) for row in rows)
    if len({route.prefix for route in routes}) != len(routes):
        raise RouteRefused("two routes have the same prefix")
    return routes


def _read_route(row: Mapping[str, Any]) -> ProxyRoute:
    prefix = _prefix(row["prefix"])
    methods = tuple(row["methods"])
    if not methods or set(methods) - METHODS:
        raise RouteRefused(f"the methods of {row['prefix']} are not all ones the listener takes")
    if not row["upstream"]:
        raise RouteRefused(f"the route {row['prefix']} has no upstream")
    return ProxyRoute(
        prefix=prefix,
        upstreams=tuple(_upstream(base) for base in row["upstream"]),
        methods=methods,
        class_name=row["class"],
        require=tuple(_required(text) for text in row["require"]),
        timeout_s=row["timeout"],
        retry=row["retry"],
        hedge=row["hedge"],
        strip_prefix=row["strip_prefix"],
        forward=row["forward"],
        tags=frozenset(row["tags"]),
        allow_headers=frozenset(_allowed(name) for name in row["allow_headers"]),
    )


def _prefix(text: str) -> tuple[str, ...]:
    segments = tuple(text.strip("/").split("/")) if text.strip("/") else ()
    if not text.startswith("/") or not all(map(_SEGMENT.fullmatch, segments)) or {".", ".."} & set(segments):
        raise RouteRefused(f"{text!r} is no path prefix: `/` and plain segments")
    if (
        {segments[:1], segments[:2]} & OWN_PREFIXES
        or segments[:1] == ("v1",)
        or (segments and segments[0] in _OWN_PAGES)
    ):
        raise RouteRefused(f"{text!r} is one of the gateway's own paths")
    return segments


def _allowed(name: str) -> bytes:
    field = name.lower().encode("ascii", "replace")
    if not _FIELD.fullmatch(field) or not may_be_allowed(field):
        raise RouteRefused(f"the header {name!r} cannot be allowed: the gateway says it itself, or it is no name")
    return field


def _upstream(base: str) -> str:
    if not base.startswith(("http://", "https://")) or "?" in base:
        raise RouteRefused(f"the upstream {base!r} is no http:// base")
    try:
        parse_url(base)
    except Malformed as exc:
        raise RouteRefused(f"the upstream {base!r} is no http:// base: {exc.detail}") from exc
    return base.rstrip("/")


def _required(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value or name not in REQUIRED_ATTRIBUTES:
        raise RouteRefused(f"{text!r} is nothing a capability can be asked for: {', '.join(REQUIRED_ATTRIBUTES)}")
    return name, value
