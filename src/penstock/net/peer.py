"""Who is at the other end of a transport."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from penstock.net.message import Peer

if TYPE_CHECKING:
    import asyncio

_CREDENTIALS = struct.Struct("3i")


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Say who it is: an address, or on a Unix socket the uid the kernel vouches for."""
    name = transport.get_extra_info("peername")
    secure = transport.get_extra_info("ssl_object") is not None
    if isinstance(name, tuple) and len(name) >= 2:
        return Peer(name[0], name[1], None, secure)
    sock = transport.get_extra_info("socket")
    return Peer("", 0, _uid(sock), secure)


def _uid(sock: socket.socket | None) -> int | None:
    """Ask the kernel; where it does not tell, -1 is nobody's uid and no list admits it."""
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return -1
    _pid, uid, _gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(uid)
