"""Send one header byte a second on every socket it inherits: a thousand patient clients."""

from __future__ import annotations

import socket
import sys
import time

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def drip(sockets: list[socket.socket]) -> None:
    """Go round until nobody listens."""
    sent = 0
    while sockets:
        byte = HEAD[sent : sent + 1] or b"a"
        sockets = [sock for sock in sockets if took(sock, byte)]
        sent += 1
        time.sleep(1.0)


def took(sock: socket.socket, byte: bytes) -> bool:
    """Send a byte; tell whether the other side still takes it."""
    try:
        sock.send(byte)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    drip([socket.socket(fileno=int(number)) for number in sys.argv[1:]])
