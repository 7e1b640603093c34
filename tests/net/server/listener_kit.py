"""A listener in memory or on real sockets, and a client that sends exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.message import Request
from penstock.net.server.connection import Connection
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.route import Route
from penstock.testing.transport import MemoryTransport, memory_pair

BOTH_LOOPS = pytest.mark.parametrize(
    "loop_name", [pytest.param(name, marks=pytest.mark.real_loop(loop=name)) for name in ("uvloop", "asyncio")]
)


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """What the echo route takes."""

    text: str
    n: int = 0


def echo(_request: Request, ask: Ask) -> dict[str, object]:
    """Answer what was asked."""
    return {"text": ask.text, "n": ask.n}


def hello(request: Request) -> dict[str, object]:
    """Answer where one is."""
    return {"path": request.path}


ROUTES = (
    Route(method="GET", path="/hello", handler=hello),
    Route(method="POST", path="/echo", handler=echo, body=Ask),
)


@dataclass(frozen=True)
class Answer:
    """One answer as it came over the wire."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> Any:
        """Decode the body."""
        return msgspec.json.decode(self.body)


def split_answers(data: bytes, heads_only: Iterable[int] = ()) -> tuple[list[Answer], bytes]:
    """Take whole answers off the front; `heads_only` are the places of answers to HEAD."""
    answers: list[Answer] = []
    bare = set(heads_only)
    while (end := data.find(b"\r\n\r\n")) >= 0:
        status, headers = _head(data[:end])
        rest = data[end + 4 :]
        taken = b"" if len(answers) in bare else _body(status, headers, rest)
        if taken is None:
            break
        used = 0 if not taken and len(answers) in bare else _used(headers, rest, taken)
        answers.append(Answer(status, headers, taken))
        data = rest[used:]
    return answers, data


def _head(raw: bytes) -> tuple[int, dict[bytes, bytes]]:
    line, *fields = raw.split(b"\r\n")
    headers = {name.lower(): value for name, _, value in (field.partition(b": ") for field in fields)}
    return int(line.split(b" ")[1]), headers


def _body(status: int, headers: dict[bytes, bytes], rest: bytes) -> bytes | None:
    if status < 200 or status == 204:
        return b""
    if b"content-length" in headers:
        length = int(headers[b"content-length"])
        return rest[:length] if len(rest) >= length else None
    body, at = b"", 0
    while (end := rest.find(b"\r\n", at)) >= 0:
        size = int(rest[at:end], 16)
        if len(rest) < end + 2 + size + 2:
            return None
        if not size:
            return body
        body += rest[end + 2 : end + 2 + size]
        at = end + 4 + size
    return None


def _used(headers: dict[bytes, bytes], rest: bytes, body: bytes) -> int:
    if b"transfer-encoding" in headers:
        return rest.index(b"0\r\n\r\n") + 5
    return len(body)


class RawClient(asyncio.Protocol):
    """Sends what it is told, keeps what it gets."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self.data = b""
        self.ended = False
        self.lost: BaseException | None = None
        self.transport: asyncio.Transport
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Keep the bytes."""
        self.data += data
        self._changed.set()

    def eof_received(self) -> bool:
        """Close our side too, as clients do."""
        self.ended = True
        self._changed.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self.ended = True
        self.lost = exc
        self._changed.set()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.transport.write(data)

    async def answers(self, count: int, heads_only: Iterable[int] = ()) -> list[Answer]:
        """Wait for so many answers; take them off."""
        bare = set(heads_only)
        # Status lines are counted first: splitting the same bytes again for every piece would be quadratic.
        while not self.ended and (
            self.data.count(b"HTTP/1.1 ") < count or len(split_answers(self.data, bare)[0]) < count
        ):
            self._changed.clear()
            await self._changed.wait()
        answers, self.data = split_answers(self.data, bare)
        return answers

    async def answer(self) -> Answer:
        """Wait for one answer."""
        got = await self.answers(1)
        assert len(got) == 1, f"{len(got)} answers, then {self.data!r}"
        return got[0]

    async def gone(self) -> list[Answer]:
        """Wait for the end of the connection; return the answers before it."""
        while not self.ended:
            self._changed.clear()
            await self._changed.wait()
        answers, self.data = split_answers(self.data)
        return answers


@dataclass
class Site:
    """A running listener and ways to reach it."""

    listener: Listener
    inventory: Inventory
    clients: list[RawClient]

    def connect(self) -> RawClient:
        """Open one more connection in memory."""
        return self.join()[0]

    def join(self) -> tuple[RawClient, Connection, MemoryTransport]:
        """Open one more connection in memory; return both ends and the client's transport."""
        client, connection = RawClient(), self.listener.connection()
        transport, _ = memory_pair(client, connection)
        self.clients.append(client)
        return client, connection, transport

    async def dial(self, **options: Any) -> RawClient:
        """Open one more connection on a real socket."""
        client = RawClient()
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", self.listener.port, **options)
        self.clients.append(client)
        return client

    def count(self, name: str, **labels: str) -> float:
        """Return a metric's value."""
        return self.inventory.metrics.value(name, **labels)


@asynccontextmanager
async def serving(
    routes: Iterable[Route] = ROUTES, options: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Site]:
    """Run a listener; in memory unless `options` name a host."""
    inventory = Inventory("test", LoopClock())
    inventory.health.gate("test", is_open=True)
    listener = Listener(inventory, ListenerOptions(**{"host": None, **(options or {})}), routes, **more)
    site = Site(listener, inventory, [])
    await listener.start()
    try:
        yield site
    finally:
        for client in site.clients:
            client.transport.abort()
        await listener.close()
        await settle()


async def settle(turns: int = 20) -> None:
    """Let what is ready happen, without moving the clock."""
    for _ in range(turns):
        await asyncio.sleep(0)


def get(path: str = "/hello", *fields: str) -> bytes:
    """Write a GET."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def post(path: str, body: bytes, *fields: str) -> bytes:
    """Write a POST with its length."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def route(handler: Callable[..., Any], method: str = "GET", path: str = "/it", **more: Any) -> Route:
    """Make a route under test."""
    return Route(method=method, path=path, handler=handler, **more)
