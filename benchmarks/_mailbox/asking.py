"""What the drivers of the peers share: a payload, a question, and how to tell that its answer is whole."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable, Generator
from pathlib import Path

PAYLOAD = "x" * 256
Whole = Callable[[bytes], bool]
# Yields what to write and how to tell that the answer is whole, is sent the answer, returns how many went round.
Round = Generator[tuple[bytes, Whole], bytes, int]


def lines(count: int) -> Whole:
    """Tell that so many lines are there."""
    return lambda data: data.count(b"\r\n") >= count


def ask(port: int, data: bytes, whole: Whole) -> bytes:
    """Ask one question on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(data)
        got = b""
        while not whole(got):
            piece = sock.recv(65536)
            if not piece:
                raise SystemExit(f"the peer closed: {got!r}")
            got += piece
        return got


def program(name: str) -> str | None:
    """Find a program on the path, or beside this interpreter."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
