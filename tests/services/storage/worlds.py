"""A running content store for a test: the real service under its supervisor, on any disk, with and without sockets."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.config import ListenerSettings
from penstock.contracts.storage import METHODS
from penstock.kernel.clock import SYSTEM, LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.rpc.oap import Stub, serve
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.service import SERVICE, StorageService
from penstock.testing.loop import VirtualLoop
from penstock.testing.transport import memory_pair
from penstock.wire.ids import address_of
from tests.contracts.worlds import World

WALL = 1_700_000_000.0
LISTENER = ListenerSettings(
    host="127.0.0.1", port=0, uds_path=None, uds_allow_uids=(), max_conns=256, max_conns_per_ip=256,
    read_timeout_s=60.0, write_timeout_s=60.0, idle_timeout_s=60.0, request_deadline_s=30.0, body_bytes_max=1 << 20,
    decompress_ratio_cap=10, tls_cert_path=None, tls_key_path=None, allowed_hosts=(),
)  # fmt: skip


@asynccontextmanager
async def running(options: StorageOptions, *, disk=None, verifier=None, clock=None) -> AsyncIterator[StorageService]:
    """Run the service, and end it in good order: nothing is held any more then."""
    inventory = Inventory(SERVICE, clock or LoopClock(WALL))
    service = StorageService(inventory, options, disk=disk, verifier=verifier)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    service.supervisor = supervisor
    try:
        yield service
    finally:
        # On the real clock the machine may be busy; on virtual time the service's own deadline holds.
        report = await supervisor.drain(None if isinstance(asyncio.get_running_loop(), VirtualLoop) else 25.0)
        await service.close()
        store = service.store
        assert report.clean, report
        assert (store.puts.in_use, store.gets.in_use, store.ledger.reserved_bytes) == (0, 0, 0)


def temporary_files(directory: Path) -> list[str]:
    """Name what lies under temporary names."""
    return [path.name for path in (directory / "tmp").iterdir()]


def file_of(directory: Path, address: str) -> Path:
    """Say where an object lies that has a file of its own."""
    return directory / address[3:5] / address[3:]


def make_loose(directory: Path, data: bytes) -> Path:
    """Store a small object as earlier versions did: in a file of its own. Only before the store is opened."""
    path = file_of(directory, address_of(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def options_for(wishes: dict[str, object], directory: Path | None) -> StorageOptions:
    """Turn the wishes of the contract's suite into options."""
    names = {"object_bytes_max": "put_bytes_max"}
    return StorageOptions(directory=directory, **{names.get(name, name): value for name, value in wishes.items()})


@asynccontextmanager
async def storage_world(kind: str, **wishes: object) -> AsyncIterator[World]:
    """Call the service's own contract object."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "objects" if kind == "files" else None
        async with running(options_for(wishes, directory)) as service:
            service.directory = directory
            yield World(service.api, service, asyncio.sleep)


@asynccontextmanager
async def storage_over_oap(kind: str, **wishes: object) -> AsyncIterator[World]:
    """Call it through OAP/1 over a memory transport."""
    async with storage_world(kind, **wishes) as world:
        server = OapServer(Inventory("svc"), OapServerOptions(), [serve(METHODS, world.api)])

        async def dial(protocol):
            connection = protocol()
            return memory_pair(connection, server.protocol())[0], connection

        client = OapClient(Inventory("caller"), OapClientOptions(call_timeout_s=30.0), dial=dial)
        await server.start()
        try:
            yield World(Stub(client, METHODS), world.fake, asyncio.sleep)
        finally:
            await client.close()
            await server.close()


@asynccontextmanager
async def served(directory: Path | None = None, *, verifier=None, disk=None, **more: object):
    """Run the service behind a real socket; yields it and a client."""
    listener = more.pop("listener", LISTENER)
    options = StorageOptions(listener=listener, directory=directory, **more)
    async with running(options, disk=disk, verifier=verifier, clock=SYSTEM) as service:
        http = Http(service.listener.port)
        try:
            yield service, http
        finally:
            http.close()


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Http:
    """One connection, one request at a time; an answer that is cut is a ConnectionError."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        return self._streams

    async def put(self, data: bytes, path: str = "/o", **headers: str) -> Answer:
        return await self.ask("PUT", path, data, **headers)

    async def get(self, address: str, **headers: str) -> Answer:
        return await self.ask("GET", f"/o/{address}", **headers)

    async def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            fields.setdefault("Content-Length", str(len(body)))
        try:
            _, writer = await self.open()
            lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode() + (body or b""))
            return await self.answer(method)
        except (asyncio.IncompleteReadError, OSError) as error:
            self.close()
            raise ConnectionError("cut") from error

    async def answer(self, method: str = "GET") -> Answer:
        """Read one answer."""
        reader, _ = await self.open()
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("HTTP/1.1 100"):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        headers = {name.lower(): value for name, value in fields.items()}
        length = 0 if method == "HEAD" else int(headers.get("content-length", "0"))
        body = await reader.readexactly(length)
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(head.split(" ", 2)[1]), headers, body)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
