"""Looks at a start's addresses and certificates before anything is written: the common mistakes leave nothing behind.

A port may still be taken between this look and the listener's own; then the start fails as late as it did before.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

from penstock.net.server.bind import CannotBind
from penstock.net.server.tls import server_context
from penstock.node.services import SERVICE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.config import Settings
    from penstock.config.kinds import HostPort


def look_ahead(settings: Settings, *, only: str | None) -> None:
    """Raise what the listeners would raise: `CannotBind`, `CertificateRefused`."""
    tables = [name for name in SERVICE_NAMES if settings.flag(f"node.{name}")] if only is None else [only]
    for table in tables if only is not None else ("admin", *tables):
        cert, key = settings.path(f"{table}.tls.cert_path"), settings.path(f"{table}.tls.key_path")
        if cert is not None and key is not None:
            server_context(cert, key)
        for address in _addresses(settings, table):
            _look(address)


def _addresses(settings: Settings, table: str) -> Iterator[HostPort]:
    yield settings.address(f"{table}.bind_addr")
    if table == "dht":
        yield settings.address("dht.peer_addr")
    metrics = None if table == "admin" else settings.address_or_none(f"{table}.metrics_addr")
    if metrics is not None:
        yield metrics


def _look(address: HostPort) -> None:
    """Take an address for a moment. A port that the system chooses is free, and a name is left to the listener."""
    try:
        version = ipaddress.ip_address(address.host or "").version
    except ValueError:
        return
    if not address.port:
        return
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address.host, address.port))
    except OSError as exc:
        why = os.strerror(exc.errno) if exc.errno else str(exc)
        taken = address.port if exc.errno == errno.EADDRINUSE else 0
        raise CannotBind(f"cannot listen on {address.host}:{address.port}: {why}", taken) from exc
