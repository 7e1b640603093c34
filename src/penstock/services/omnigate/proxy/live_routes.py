"""Routes that an operator adds while the gateway runs, beside those of the configuration file.

They are kept in a file of their own, or in RAM under amnesia. The configuration's come first: on the same prefix the
file's route wins, and adding such a route is refused. A change is written before it is applied, and applied in one
step: requests under way finish on the old table.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.kernel.errors import Conflict, Malformed, NotFound, OverLimit
from penstock.services.omnigate.proxy.config import ProxyRoute, RouteRefused, read_routes

LIVE_ROUTES_MAX: Final = 256
_Word = Annotated[str, Meta(min_length=1, max_length=512)]


class NewRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A route to add: what begins with `prefix` goes to `upstream`, by default without the prefix."""

    prefix: _Word
    upstream: Annotated[tuple[_Word, ...], Meta(min_length=1)]
    strip_prefix: bool = True
    # What a capability must cover, as `op=get`; empty: open to anyone.
    require: tuple[_Word, ...] = ()
    methods: tuple[_Word, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] = 5000

    def route(self) -> ProxyRoute:
        """Return it as the gateway serves it, or refuse it with what is wrong."""
        _check_begin(self.prefix)
        row: dict[str, Any] = {
            "prefix": self.prefix, "upstream": self.upstream, "methods": self.methods, "class": "",
            "require": self.require, "timeout": self.timeout_ms / 1000, "retry": True, "hedge": False,
            "strip_prefix": self.strip_prefix, "forward": "none", "tags": (), "allow_headers": (),
        }  # fmt: skip
        try:
            return read_routes((row,))[0]
        except RouteRefused as refused:
            raise Malformed(f"The route is refused: {refused}.") from refused


def _check_begin(prefix: str) -> None:
    """Refuse a prefix without its slash, which is the same mistake whether a route is added or removed."""
    if not prefix.startswith("/"):
        raise Malformed(f"The prefix {prefix!r} does not begin with a slash.", hint=f"Write it as /{prefix}")


class RemoveRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route to remove, by its prefix."""

    prefix: _Word


@dataclass(frozen=True, slots=True)
class RouteTables:
    """Both kinds of routes, as they are now."""

    configured: tuple[ProxyRoute, ...]
    live: tuple[ProxyRoute, ...]

    @property
    def served(self) -> tuple[ProxyRoute, ...]:
        """Return what is served: on the same prefix the configuration's."""
        taken = {route.prefix for route in self.configured}
        return (*self.configured, *(route for route in self.live if route.prefix not in taken))


class LiveRoutes:
    """Holds the routes that were added, and tells who serves them."""

    def __init__(self, file: Path | None, configured: tuple[ProxyRoute, ...]) -> None:
        """Read the file, if there is one; a damaged one is refused at the start, not overwritten."""
        self._file = file
        self._configured = configured
        self._added: dict[str, NewRoute] = {}
        self.on_change: Callable[[RouteTables], None] = lambda _tables: None
        for new in _read(file):
            self._added[new.route().name] = new

    @property
    def tables(self) -> RouteTables:
        """Return both kinds."""
        return RouteTables(self._configured, tuple(new.route() for new in self._added.values()))

    def add(self, new: NewRoute) -> ProxyRoute:
        """Add a route, or put another in the place of one that was added before."""
        route = new.route()
        if any(route.prefix == other.prefix for other in self._configured):
            raise Conflict(
                f"The configuration file has a route for {route.name}, and it wins.",
                reason="configured",
                hint="Change it there and run penstock config reload, or choose another prefix.",
            )
        if route.name not in self._added and len(self._added) >= LIVE_ROUTES_MAX:
            said = f"There are {LIVE_ROUTES_MAX} added routes already; remove one."
            raise OverLimit(said, limit="routes", limit_value=LIVE_ROUTES_MAX, actual=len(self._added) + 1)
        self._change({**self._added, route.name: new})
        return route

    def remove(self, prefix: str) -> None:
        """Remove a route that was added."""
        _check_begin(prefix)
        name = "/" + prefix.strip("/")
        if name not in self._added:
            configured = any(name == route.name for route in self._configured)
            if configured:
                raise Conflict(
                    f"The route {name} is in the configuration file.",
                    reason="configured",
                    hint="Take it out there and run penstock config reload.",
                )
            raise NotFound(f"There is no route {name}.", hint="See penstock route list.")
        self._change({each: new for each, new in self._added.items() if each != name})

    def configure(self, configured: tuple[ProxyRoute, ...]) -> None:
        """Follow the configuration file."""
        if configured != self._configured:
            self._configured = configured
            self.on_change(self.tables)

    def _change(self, added: dict[str, NewRoute]) -> None:
        if self._file is not None:
            _write(self._file, list(added.values()))
        self._added = added
        self.on_change(self.tables)


def _read(file: Path | None) -> list[NewRoute]:
    if file is None:
        return []
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8")).get("routes", [])
        return msgspec.convert(rows, list[NewRoute])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, msgspec.ValidationError) as exc:
        raise RouteRefused(f"the added routes in {file} cannot be read: {exc}") from exc


def _write(file: Path, routes: list[NewRoute]) -> None:
    """Write a new file and put it in the place of the old one."""
    text = "# Routes that `penstock route add` made; change them with that command.\n"
    for route in routes:
        text += "\n[[routes]]\n"
        # A JSON string or list of strings is one of TOML too; so is a number, and true and false.
        text += "".join(f"{name} = {json.dumps(value)}\n" for name, value in msgspec.to_builtins(route).items())
    beside = file.with_suffix(".new")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(file)
