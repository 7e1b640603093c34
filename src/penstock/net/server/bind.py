"""Opens the listening sockets of a listener, or says in one sentence why that cannot be done."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.kernel.errors import Timeout
from penstock.net.server.accept import Acceptor, listen_tcp
from penstock.net.server.tls import server_context
from penstock.net.server.tls_accept import SecureServer
from penstock.net.server.unix import listen_unix

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from penstock.net.server.core import Core
    from penstock.net.server.listener_options import ListenerOptions

Place = tuple[object, ...]


class CannotBind(Exception):
    """The address cannot be listened on."""

    def __init__(self, sentence: str, port: int = 0) -> None:
        """Say why; `port` is the one that somebody else has."""
        super().__init__(sentence)
        self.port = port


def place_of(options: ListenerOptions) -> Place:
    """Return what of the options decides where a listener is found; equal places need no new sockets."""
    return options.host, options.port, options.uds_path, options.tls_cert_path, options.tls_key_path


async def bind(core: Core, options: ListenerOptions) -> list[Acceptor]:
    """Open every socket the options ask for, or none."""
    servers: list[Acceptor] = []
    try:
        if options.host is not None:
            servers.append(await _bind_tcp(core, options, options.host))
        if options.uds_path is not None:
            servers.append(_bind_unix(core, options, options.uds_path))
    except BaseException:
        for server in servers:
            server.close()
        raise
    return servers


async def _bind_tcp(core: Core, options: ListenerOptions, host: str) -> Acceptor:
    context = tls_context(options)
    try:
        sockets = await listen_tcp(core.loop, options, host)
        return Acceptor(core, sockets) if context is None else SecureServer(core, sockets, context)
    except Timeout as exc:
        raise CannotBind(f"cannot listen on {host}:{options.port}: {exc.detail}") from exc
    except OSError as exc:
        # The loop wraps the system's words in its own; the system's are the clear ones.
        why = os.strerror(exc.errno) if exc.errno else str(exc)
        taken = options.port if exc.errno == errno.EADDRINUSE else 0
        raise CannotBind(f"cannot listen on {host}:{options.port}: {why}", taken) from exc


def tls_context(options: ListenerOptions) -> ssl.SSLContext | None:
    """Read the certificate that the options name; None without one."""
    cert_path, key_path = options.tls_cert_path, options.tls_key_path
    if cert_path is None and key_path is None:
        return None
    if cert_path is None or key_path is None:
        raise ValueError("TLS needs both a certificate and a key")
    return server_context(cert_path, key_path)


def _bind_unix(core: Core, options: ListenerOptions, path: Path) -> Acceptor:
    try:
        return Acceptor(core, [listen_unix(path, backlog=options.backlog)])
    except OSError as exc:
        raise CannotBind(f"cannot listen on {path}: {exc.strerror or exc}") from exc
