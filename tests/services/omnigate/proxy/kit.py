"""A gateway's proxy between a raw client and upstreams that say exactly what they are told to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.services.omnigate.proxy.routes import Proxies, ProxyDeps, ProxyOptions
from penstock.testing.line import CLEAR, Weather
from penstock.testing.transport import memory_pair
from tests.net.calls.peers import HalfRng
from tests.net.server.listener_kit import (
    Answer,
    RawClient,
    Site,
    settle,
)

Script = Callable[["UpstreamConnection", bytes], None]


class UpstreamConnection(asyncio.Protocol):
    """One connection of the proxy, as its upstream sees it: every byte is kept as it came."""

    def __init__(self, upstream: RawUpstream) -> None:
        self.upstream = upstream
        self.raw = b""
        self.ended = False
        self.transport: asyncio.Transport
        self.paused = False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.upstream.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self.raw += data
        if b"\r\n\r\n" in self.raw:
            self.upstream.script(self, self.raw)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def say(self, *pieces: bytes) -> None:
        self.transport.write(b"".join(pieces))

    def next_request(self) -> bytes:
        """Take what came so far off, as one request."""
        raw, self.raw = self.raw, b""
        self.upstream.requests.append(raw)
        return raw


def says(*pieces: bytes, close: bool = False) -> Script:
    """Answer each request (without a body) with these bytes."""

    def script(connection: UpstreamConnection, raw: bytes) -> None:
        connection.next_request()
        connection.say(*pieces)
        if close:
            connection.transport.close()

    return script


def in_turn(*scripts: Script) -> Script:
    """Each request meets the next script; the last one stays."""
    left = list(scripts)

    def script(connection: UpstreamConnection, raw: bytes) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(connection, raw)

    return script


def silent(connection: UpstreamConnection, raw: bytes) -> None:
    """Take the request and never answer."""
    connection.next_request()


def hangs_up(connection: UpstreamConnection, raw: bytes) -> None:
    """Close without a byte of an answer."""
    connection.next_request()
    connection.transport.close()


def ok(body: bytes = b"ok", *fields: str, status: str = "200 OK") -> bytes:
    lines = "".join(f"{line}\r\n" for line in fields)
    return f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def until(client: RawClient, holds: Callable[[bytes], bool]) -> bytes:
    """Wait until what the client got satisfies `holds`, or nothing more can come; leave it there."""
    while not client.ended and not holds(client.data):
        client._changed.clear()
        await client._changed.wait()
    return client.data


@dataclass
class RawUpstream:
    """An upstream in memory."""

    script: Script = field(default_factory=lambda: says(ok()))
    back: Weather = CLEAR
    refuses: OSError | None = None
    dial_s: float = 0.0
    connections: list[UpstreamConnection] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)

    @property
    def open(self) -> int:
        return sum(not connection.ended for connection in self.connections)


@dataclass
class Gateway:
    """The site, its proxies and its upstreams by host name."""

    site: Site
    proxies: Proxies
    upstreams: dict[str, RawUpstream]

    def connect(self) -> RawClient:
        return self.site.connect()

    async def ask(self, data: bytes) -> Answer:
        """Send one request on a connection of its own and wait for the answer."""
        client = self.site.connect()
        client.send(data)
        return await client.answer()

    async def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that came until the connection ended."""
        client = self.site.connect()
        client.send(data)
        return await until(client, lambda _: False)

    def count(self, name: str, **labels: str) -> float:
        return self.proxies.inventory.metrics.value(name, **labels)


@asynccontextmanager
async def gateway(
    *scripts: Script,
    options: dict[str, Any] | None = None,
    listener: dict[str, Any] | None = None,
    around: dict[str, Any] | None = None,
    **route: Any,
) -> AsyncIterator[Gateway]:
    """Run the proxy in memory: `/api` goes to upstreams that follow these scripts, up0.test and so on."""
    upstreams = {f"up{n}.test": RawUpstream(script) for n, script in enumerate(scripts or (says(ok()),))}

    async def dial(origin: HttpOrigin, connection: ClientConnection) -> None:
        upstream = upstreams[origin.host]
        if upstream.dial_s:
            await asyncio.sleep(upstream.dial_s)
        if upstream.refuses is not None:
            raise upstream.refuses
        memory_pair(connection, UpstreamConnection(upstream), b_to_a=upstream.back)

    given = {"prefix": ("api",), "upstreams": tuple(f"http://{host}" for host in upstreams), **route}
    surroundings = ProxyDeps(rng=HalfRng(), dial=dial, **(around or {}))
    inventory = Inventory("omnigate", LoopClock())
    inventory.health.gate("test", is_open=True)
    proxies = Proxies(inventory, [ProxyRoute(**given)], ProxyOptions(**(options or {})), surroundings)
    server = Listener(inventory, ListenerOptions(**{"host": None, **(listener or {})}), list(proxies.routes()))
    site = Site(server, inventory, [])
    await server.start()
    try:
        yield Gateway(site, proxies, upstreams)
    finally:
        for client in site.clients:
            client.transport.abort()
        await server.close()
        await proxies.close()
        await settle()
