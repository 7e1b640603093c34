"""An upstream that behaves as its path says, mostly badly, and clients that are no better."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

GIVEN_UP = (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError)
PIECE = b"x" * 65_536
WAIT_S = 3.0


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by a reset."""
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection of the gateway."""
    try:
        with suppress(*GIVEN_UP):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await _read_body(reader, head.lower())
                await _answer(head.split(b" ")[1].rpartition(b"/")[2], writer)
    finally:
        reset(writer)  # also when the test ends while an answer is held back


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    if b"content-length: " in head:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    elif b"chunked" in head:
        await reader.readuntil(b"0\r\n\r\n")


async def _answer(word: bytes, writer: asyncio.StreamWriter) -> None:
    if word == b"never":
        await asyncio.sleep(WAIT_S)
    if word in {b"never", b"reset"}:
        raise EOFError
    size = len(PIECE) * 16 if word == b"long" else 10 if word == b"drip" else 2
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    if word == b"half":
        writer.write(b"o")
        await writer.drain()
        raise EOFError
    for piece in [PIECE] * 16 if word == b"long" else [b"x"] * 10 if word == b"drip" else [b"ok"]:
        writer.write(piece)
        await writer.drain()
        if word == b"drip":
            await asyncio.sleep(0.08)


class Clients:
    """Clients that come, break off, dawdle and forge, as the dice say, until they are told to stop."""

    def __init__(self, port: int, token: str, seed: int) -> None:
        self._port = port
        self._token = token
        self._dice = random.Random(seed)
        self.statuses: Counter[bytes] = Counter()

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send one request after the other."""
        acts: list[Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]] = [
            self._whole, self._whole, self._broken_off, self._slow_sender, self._slow_reader, self._twice,
        ]  # fmt: skip
        while not is_over():
            with suppress(*GIVEN_UP):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    async with asyncio.timeout(WAIT_S):
                        await self._dice.choice(acts)(reader, writer)
                finally:
                    (reset if self._dice.random() < 0.5 else _close)(writer)

    def _request(self) -> bytes:
        dice, body = self._dice, b""
        fields = dice.choice(
            ["", f"Authorization: Bearer {self._token}\r\n", f"Authorization: Bearer {self._token[:-5]}AAAAA\r\n"]
        )
        fields += dice.choice(["", f"X-Deadline-Ms: {dice.choice([1, 50, 300])}\r\n"])
        path = "/shop/" + dice.choice(["ok", "ok", "never", "reset", "half", "drip", "long"])
        method = dice.choice(["GET", "POST", "PUT"])
        if dice.random() < 0.4:
            fields = f"Authorization: Bearer {self._token}\r\n"
            method, path = "POST", "/v1/mailbox/storm" + dice.choice(["", "/recv"])
            body = b'{"wait_ms":400}' if path.endswith("recv") else b""
        if method != "GET":
            body = body or b"y" * dice.choice([0, 10, 3000, 200_000])
            fields += f"Content-Length: {len(body)}\r\n"
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode() + body

    async def _whole(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._request())
        await self._read_status(reader)

    async def _read_status(self, reader: asyncio.StreamReader) -> None:
        self.statuses[(await reader.readline())[9:12]] += 1

    async def _broken_off(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self._request()
        writer.write(request[: self._dice.randrange(len(request))])
        await asyncio.sleep(self._dice.random() * 0.1)

    async def _slow_sender(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self._request()
        cut = self._dice.randrange(len(request))
        writer.write(request[:cut])
        await asyncio.sleep(self._dice.random() * 0.3)
        writer.write(request[cut:])
        await self._read_status(reader)

    async def _slow_reader(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(b"GET /shop/long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await self._read_status(reader)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(self._dice.random() * 0.5)

    async def _twice(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._request() + self._request())
        await self._read_status(reader)
        await asyncio.sleep(self._dice.random() * 0.2)


def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
