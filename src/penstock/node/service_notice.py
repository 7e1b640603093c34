"""Telling the service manager how far the node is, where one listens: one datagram, by systemd's protocol."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1` or the like to `NOTIFY_SOCKET`; a missing or failing listener is ignored."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    # A name that begins with @ stands for Linux's abstract sockets, written with a zero byte.
    address = f"\0{where[1:]}" if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.sendto(state.encode("ascii"), socket.MSG_DONTWAIT, address)
