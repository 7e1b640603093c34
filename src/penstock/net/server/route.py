"""Routes as data, and the table that finds one by method and decoded segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from penstock.kernel.errors import NotFound, Unsupported
from penstock.net.message import HandlerResult

_NO_PARAMS: Final[dict[str, str]] = {}
# What a path that was not found is compared with: no more than the longest route has, and no word longer than any.
_SEGMENTS_COMPARED: Final = 8
_WORD_CHARS_COMPARED: Final = 32
# What the paths of services begin with.
_VERSION: Final = "v1"


@dataclass(frozen=True, kw_only=True, eq=False)
class Route:
    """One operation: where it is found, who handles it, what goes in and out."""

    method: str
    path: str
    handler: Callable[..., HandlerResult]
    body: type | None = None
    # Reads a body once more that is not of that type, as far as it can be read; raises as msgspec does when it cannot.
    reread: Callable[[bytes], object] | None = None
    # Another form of the body, which `reread` reads.
    body_too: type | None = None
    # The forms of the body as they are described, where one struct reads several of them.
    body_forms: tuple[type, ...] = ()
    answer: type | None = None
    # Success is answered by 204 and no body.
    empty: bool = False
    # The answer to a body with many items, where one route takes one or many.
    answer_many: type | None = None
    # What may stand in the place of a `{name}`, as an annotated type: only described here, the handler checks it.
    params: Mapping[str, object] = field(default_factory=dict)
    # The fields of the query, as a struct: described here too.
    query: type | None = None
    stream_body: bool = False
    # The body is any bytes, and comes whole: only described here.
    octets: bool = False
    # The handler gets the body as it was sent, not inflated: a signature covers exactly those bytes.
    raw_body: bool = False
    body_bytes_max: int | None = None
    # The setting behind that limit, for the refusal; empty: the listener's own.
    body_setting: str = ""
    # What to do about a body that is too large; empty: what `net.advice` says.
    body_advice: str = ""
    op: str = ""
    summary: str = ""
    # Open routes need no capability.
    open: bool = False
    errors: tuple[str, ...] = ()
    deadline_s: float | None = None
    # How far a client may extend that by X-Deadline-Ms; None: not at all.
    deadline_max_s: float | None = None
    # Its answers may take long; a client that closes its side meanwhile is taken to have gone.
    long_poll: bool = False


class _Node:
    __slots__ = ("literals", "param", "rest", "routes")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.param: _Node | None = None
        # `{name*}` takes all that is left of the path.
        self.rest: _Node | None = None
        self.routes: dict[str, tuple[Route, tuple[str, ...]]] = {}


class Router:
    """Find a route: literal segments win over `{name}`, `{name}` over a final `{name*}`."""

    def __init__(self, routes: Iterable[Route], service: str = "a service") -> None:
        """Build the table; two routes for the same method and shape are a bug. `service` is named at `/`."""
        self.routes = tuple(routes)
        self._service = service
        self._root = _Node()
        self._static: dict[tuple[str, ...], dict[str, tuple[Route, tuple[str, ...]]]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        segments = tuple(route.path[1:].split("/")) if route.path != "/" else ()
        for segment in segments:
            node, name = _descend(node, segment)
            names += [name] if name else []
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.path} is declared twice")
        node.routes[route.method] = (route, tuple(names))
        if not names:
            self._static[segments] = node.routes

    def match(self, method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
        """Return the route and its parameters; 404 without one, 405 with `allow` for another method."""
        found = self._static.get(segments)
        if found is not None:
            hit = found.get(method)
            if hit is not None:
                return hit[0], _NO_PARAMS
        return self._walk(method, segments)

    def allowed(self, segments: tuple[str, ...]) -> list[str]:
        """List the methods a path answers to; empty when nothing is there."""
        node, _ = self._find(segments)
        if node is None:
            return []
        methods = set(node.routes) | {"OPTIONS"}
        return sorted(methods | {"HEAD"} if "GET" in methods else methods)

    def leaves_options(self, segments: tuple[str, ...]) -> bool:
        """Tell whether OPTIONS is the listener's to answer: something is there, and does not take it itself."""
        node, _ = self._find(segments)
        return node is not None and "OPTIONS" not in node.routes

    def _walk(self, method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
        node, values = self._find(segments)
        if node is None:
            raise self._nowhere(method, segments)
        hit = node.routes.get(method) or (node.routes.get("GET") if method == "HEAD" else None)
        if hit is None and not segments and method in ("GET", "HEAD"):
            # Programs may post to /; a browser is told what this port is.
            raise self._nowhere(method, segments)
        if hit is None:
            allow = self.allowed(segments)
            hint = f"It takes {', '.join(allow)}."
            raise Unsupported("This route does not take this method.", status=405, allow=allow, hint=hint)
        return hit[0], dict(zip(hit[1], values, strict=True))

    def _nowhere(self, method: str, segments: tuple[str, ...]) -> NotFound:
        """Say what may have been meant: a `/` inside a parameter, such as a topic, has to be written %2F."""
        if not segments:
            return NotFound(
                f"This port is {self._service} of a penstock node, an HTTP API; nothing is at /.",
                hint="/openapi.json describes what it answers, /readyz tells how it is; "
                "the operator's page, with the API for people under /docs, is on the admin port (penstock open).",
                docs="docs/README.md",
            )
        for kept in range(len(segments) - 1, 0, -1):
            node, values = self._find((*segments[:kept], "x"))
            if node is not None and method in node.routes and values:
                path = "/".join(("", *segments[:kept], "%2F".join(segments[kept:])))
                return NotFound("There is no such route.", hint=f"In a path a / inside a name is written %2F: {path}")
        meant = self._meant(segments)
        hint = f"Did you mean {meant}?" if meant else "/openapi.json lists every path of this port."
        return NotFound("There is no such route.", hint=hint)

    def _meant(self, segments: tuple[str, ...]) -> str:
        """Return the path that was most likely meant, or nothing.

        Anyone can ask for paths that are not there, as fast as they like: each segment is compared only with the few
        words that may stand in its place, each in one pass.
        """
        given = tuple(filter(None, segments))[:_SEGMENTS_COMPARED]
        for asked in (given, (_VERSION, *given)):
            node: _Node | None = self._root
            path = []
            for segment in asked:
                assert node is not None
                word = segment if segment in node.literals else _nearest(segment, node.literals)
                path.append(word or quote(segment, safe=""))
                node = node.literals[word] if word else node.param
                if node is None:
                    break
            if node is not None and node.routes:
                return "/" + "/".join(path)
        return ""

    def _find(self, segments: tuple[str, ...]) -> tuple[_Node | None, list[str]]:
        """Walk down with the last wildcard in mind: a dead end under a literal falls back to it."""
        node = self._root
        values: list[str] = []
        fallback: tuple[_Node | None, list[str]] = (None, [])
        for index, segment in enumerate(segments):
            if node.rest is not None:
                fallback = (node.rest, [*values, "/".join(segments[index:])])
            child = node.literals.get(segment)
            if child is None:
                child = node.param
                values = [*values, segment]
            if child is None:
                return fallback
            node = child
        if node.routes:
            return node, values
        return (node.rest, [*values, ""]) if node.rest is not None else fallback


def _nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that differs from this one by one character, its letters' case aside, or nothing."""
    if len(word) > _WORD_CHARS_COMPARED:
        return ""
    asked = word.lower()
    return next((each for each in known if _is_near(asked, each.lower())), "")


def _is_near(one: str, other: str) -> bool:
    """Tell whether a word becomes the other by changing, adding or dropping one character, or swapping two."""
    if abs(len(one) - len(other)) > 1:
        return False
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    left, right = one[same:], other[same:]
    if len(left) != len(right):
        return left[1:] == right if len(left) > len(right) else left == right[1:]
    return left[1:] == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])


def _descend(node: _Node, segment: str) -> tuple[_Node, str]:
    """Return the child for one segment of a template, and the parameter's name if it is one."""
    if not segment.startswith("{"):
        return node.literals.setdefault(segment, _Node()), ""
    name = segment[1:-1]
    if name.endswith("*"):
        node.rest = node.rest or _Node()
        return node.rest, name[:-1]
    node.param = node.param or _Node()
    return node.param, name
