"""Scripted servers for the client's tests: honest, lying, slow, chatty or dying, in memory or on real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import h11

from penstock.kernel.inventory import Inventory
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.testing.line import CLEAR, Weather
from penstock.testing.transport import memory_pair

URL = "http://peer.test/things"


@dataclass
class Seen:
    """One request as h11 read it: what the client writes must pass a strict parser."""

    method: str
    target: str
    headers: dict[bytes, bytes]
    body: bytes = b""


Script = Callable[["PeerConnection", Seen], None]


class PeerConnection(asyncio.Protocol):
    """One accepted connection; calls the script when a request is complete, or at its head."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.number = peer.accepted
        self.requests = 0
        self.transport: asyncio.Transport
        self.received_bytes = 0
        self._reader = h11.Connection(h11.SERVER)
        self._seen: Seen | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.peer.accepted += 1
        self.peer.open.append(self)
        if self.peer.greeting:
            transport.write(self.peer.greeting)

    def connection_lost(self, exc) -> None:
        self.peer.open.remove(self)
        if not self.peer.open and self.peer.emptied is not None:
            self.peer.emptied.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self._reader.receive_data(data)
        try:
            while (event := self._reader.next_event()) is not h11.NEED_DATA:
                self._take(event)
        except h11.RemoteProtocolError as error:
            self.peer.faults.append(error)
            self.hang_up()

    def _take(self, event) -> None:
        if isinstance(event, h11.Request):
            self._seen = Seen(event.method.decode(), event.target.decode(), dict(event.headers))
            self._act(at_head=True)
        elif isinstance(event, h11.Data):
            self._seen.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            rest, _ = self._reader.trailing_data
            self._reader = h11.Connection(h11.SERVER)
            self._reader.receive_data(rest) if rest else None
            self._act(at_head=False)

    def _act(self, *, at_head: bool) -> None:
        if at_head is self.peer.at_head:
            self.requests += 1
            self.peer.seen.append(self._seen)
            self.peer.script(self, self._seen)

    def send(self, *pieces: bytes) -> None:
        self.transport.write(b"".join(pieces))

    def hang_up(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """End by a reset: a real socket closed without lingering sends RST instead of FIN."""
        if (sock := self.transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def answer(body: bytes = b"ok", status: str = "200 OK", *fields: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in fields)
    return f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def says(*pieces: bytes) -> Script:
    return lambda connection, _: connection.send(*pieces)


def in_turn(*scripts: Script) -> Script:
    """Each request of the peer meets the next script; the last one stays."""
    left = list(scripts)

    def script(connection: PeerConnection, seen: Seen) -> None:
        now = left.pop(0) if len(left) > 1 else left[0]
        now(connection, seen)

    return script


def silent(connection: PeerConnection, seen: Seen) -> None:
    """Read the request and never answer."""


def hangs_up(connection: PeerConnection, seen: Seen) -> None:
    """Close without a byte of an answer."""
    connection.hang_up()


@dataclass
class Peer:
    """A server: its script, and what it has seen."""

    script: Script = field(default_factory=lambda: says(answer()))
    at_head: bool = False
    greeting: bytes = b""
    # How the peer's bytes and the client's bytes travel.
    back: Weather = CLEAR
    there: Weather = CLEAR
    # What dialling meets: nothing, an error, or a wait.
    refuses: OSError | None = None
    dial_s: float = 0.0
    accepted: int = 0
    seen: list[Seen] = field(default_factory=list)
    open: list[PeerConnection] = field(default_factory=list)
    # What a strict parser found wrong with the client's bytes.
    faults: list[Exception] = field(default_factory=list)
    emptied: asyncio.Future[None] | None = None

    async def gone(self) -> None:
        """Wait until every connection has ended on this side too; the test's watchdog bounds it."""
        if self.open:
            self.emptied = asyncio.get_running_loop().create_future()
            await self.emptied
            self.emptied = None

    async def dial(self, origin: HttpOrigin, connection: ClientConnection) -> None:
        """Join a client's connection to this peer in memory."""
        if self.dial_s:
            await pass_time(self.dial_s)
        if self.refuses is not None:
            raise self.refuses
        memory_pair(connection, PeerConnection(self), a_to_b=self.there, b_to_a=self.back)
        if self.greeting:
            await turns()


class HalfRng:
    """Jitter without chance."""

    def random(self) -> float:
        return 0.5


def make_client(peer: Peer, **options) -> HttpClient:
    """Make a client of a peer in memory; its metrics are `client_metrics(client)`."""
    inventory = Inventory("test")
    client = HttpClient(inventory, ClientOptions(service="peer", **options), rng=HalfRng(), dial=peer.dial)
    _inventories[id(client)] = inventory
    return client


_inventories: dict[int, Inventory] = {}


def metric(client: HttpClient, name: str, **labels: str) -> float:
    """Return the present value of one of a client's metrics."""
    return _inventories[id(client)].metrics.value(name, **labels)


async def turns(count: int = 8) -> None:
    """Let the loop run what is due now."""
    for _ in range(count):
        await asyncio.sleep(0)


async def pass_time(seconds: float) -> None:
    """Let virtual time pass; nothing here waits on the wall clock."""
    await asyncio.sleep(seconds)
