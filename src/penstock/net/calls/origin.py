"""Where a call goes: an address and a target, parsed strictly because either may come from configuration or a user."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from penstock.kernel.errors import Malformed

_PORTS: Final = {"http": 80, "https": 443}
_TCP_URL: Final = re.compile(r"(https?)://([^/?#]*)(.*)", re.DOTALL)
_UNIX_URL: Final = re.compile(r"unix:([^:]*)(?::(.*))?", re.DOTALL)
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9.])?)(?::([0-9]{1,5}))?")
_TARGET: Final = re.compile(r"/(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=]+|%[0-9A-Fa-f]{2})*+")
_SOCKET_PATH: Final = re.compile(r"/[^\x00:]*[^\x00:/]")


class HttpOrigin(msgspec.Struct, frozen=True, cache_hash=True):
    """One peer: connections to equal origins are interchangeable."""

    scheme: Literal["http", "https", "unix"]
    # A host name or literal; for `unix` the path of the socket.
    host: str
    port: int
    # The Host field's value.
    authority: bytes


@lru_cache(maxsize=512)
def parse_url(url: str) -> tuple[HttpOrigin, str]:
    """Split `http(s)://host[:port]/target` or `unix:/socket[:/target]` into the origin and the request target."""
    match = _TCP_URL.fullmatch(url)
    if match is not None:
        return _tcp_origin(match[1], match[2]), _checked_target(match[3])
    match = _UNIX_URL.fullmatch(url)
    if match is None:
        raise Malformed("A URL starts with http://, https:// or unix:/.")
    return _unix_origin(match[1]), _checked_target(match[2] or "/")


def _checked_target(target: str) -> str:
    target = target if target.startswith("/") else "/" + target
    if not _TARGET.fullmatch(target):
        raise Malformed("A URL's target holds only the characters of RFC 3986, and no fragment.")
    return target


@lru_cache(maxsize=256)
def _tcp_origin(scheme: str, authority: str) -> HttpOrigin:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise Malformed("A URL names a host and perhaps a port, and nothing else before its path.")
    default = _PORTS[scheme]
    port = int(match[2]) if match[2] else default
    if not 0 < port < 65536:
        raise Malformed("A URL's port is between 1 and 65535.")
    host = match[1].lower()
    shown = host if port == default else f"{host}:{port}"
    return HttpOrigin("https" if scheme == "https" else "http", host.strip("[]"), port, shown.encode("ascii"))


@lru_cache(maxsize=256)
def _unix_origin(path: str) -> HttpOrigin:
    if not _SOCKET_PATH.fullmatch(path):
        raise Malformed("A socket's path is absolute and holds no colon.")
    return HttpOrigin("unix", path, 0, b"localhost")
