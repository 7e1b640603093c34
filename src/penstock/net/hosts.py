"""Host and Origin rules: they keep a web page in the user's browser from calling a service on loopback."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Forbidden, Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.wire.http1.head import HttpHead

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_CROSS_SITE: Final = frozenset({b"cross-site", b"same-site"})
_KEPT: Final = 256


class HostRules:
    """Judge Host on loopback listeners (DNS rebinding) and Origin everywhere (drive-by posts)."""

    __slots__ = ("_names", "_origins", "_table", "known", "loopback")

    def __init__(
        self, *, loopback: bool, names: Iterable[str] = (), origins: Iterable[str] = (), table: str = ""
    ) -> None:
        """Take the configured names and origins; `localhost` and loopback literals are always ours.

        `table` is where the settings of the listener are, for whoever reads a refusal.
        """
        self._table = table
        self.loopback = loopback
        self._names = frozenset(name.lower() for name in names) | {"localhost"}
        self._origins = frozenset(origin.lower().encode("ascii") for origin in origins)
        # Host values that passed, with port; bounded, because a client chooses them.
        self.known: set[bytes | None] = {None}

    def check(self, head: HttpHead) -> None:
        """Refuse a foreign Host (421) and a cross-site Origin (403)."""
        host = head.headers.get(b"host")
        if host not in self.known:
            self._check_host(host or b"")
        if b"origin" in head.headers or b"sec-fetch-site" in head.headers:
            self._check_origin(head, host or b"")

    def _check_host(self, host: bytes) -> None:
        if self.loopback and not self._is_ours(_name_of(host)):
            setting = f"{self._table}.allowed_hosts"
            hint = f"Ask by localhost or by the address, or add the name to {setting}."
            raise Malformed("This listener does not answer to that Host.", status=421, setting=setting, hint=hint)
        if len(self.known) < _KEPT:
            self.known.add(host)

    def _is_ours(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _check_origin(self, head: HttpHead, host: bytes) -> None:
        if not _changes_something(head):
            return
        origin = head.headers.get(b"origin")
        if origin is None:
            foreign = head.headers.get(b"sec-fetch-site", b"").lower() in _CROSS_SITE
        else:
            foreign = not self._same_site(origin.lower(), host)
        if foreign:
            raise Forbidden("Requests from other sites may not do this.", reason="cross_site")

    def _same_site(self, origin: bytes, host: bytes) -> bool:
        """Compare the origin's authority with Host: a page that this listener served has them equal."""
        scheme, _, authority = origin.partition(b"://")
        ours = scheme in {b"http", b"https"} and authority == host.lower()
        return origin in self._origins or (bool(authority) and ours)


def is_loopback(host: str | None) -> bool:
    """Tell whether a bind address can be reached from this machine only."""
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _changes_something(head: HttpHead) -> bool:
    """Tell whether a request changes state or opens an event stream."""
    return head.method not in _SAFE or b"text/event-stream" in head.headers.get(b"accept", b"").lower()


def _name_of(host: bytes) -> str:
    """Return the name without port and brackets; what is in brackets must be an IPv6 address."""
    text = host.decode("ascii").lower()
    if not text.startswith("["):
        return text.partition(":")[0].rstrip(".")
    name = text[1:].partition("]")[0]
    try:
        return str(ipaddress.IPv6Address(name))
    except ValueError as exc:
        raise Malformed("The Host field is not a host and port.") from exc
