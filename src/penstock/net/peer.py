"""Who is at the other end of a transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.net.message import Peer
from penstock.net.server.unix import peer_uid

if TYPE_CHECKING:
    import asyncio


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Say who it is: an address, or on a Unix socket the uid the kernel vouches for."""
    name = transport.get_extra_info("peername")
    secure = transport.get_extra_info("ssl_object") is not None
    if isinstance(name, tuple) and len(name) >= 2:
        return Peer(name[0], name[1], None, secure)
    sock = transport.get_extra_info("socket")
    return Peer("", 0, None if sock is None else peer_uid(sock), secure)
