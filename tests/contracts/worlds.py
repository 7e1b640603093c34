"""Where a contract is put to the test: in RAM, behind OAP/1 in memory, and behind a real Unix socket."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock.contracts.method import Methods
from penstock.kernel.clock import Clock, LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.rpc.oap import Stub, serve
from penstock.testing.fakes import VirtualClock
from penstock.testing.transport import memory_pair

T = TypeVar("T")


@dataclass
class World(Generic[T]):
    """One implementation of a contract, what lies behind it, and a way to let time pass."""

    api: Any
    fake: T
    advance: Callable[[float], Awaitable[None]]


@asynccontextmanager
async def in_ram(make: Callable[[Clock], T], _methods: Methods) -> AsyncIterator[World[T]]:
    """Call the implementation itself, on virtual time."""
    fake = make(LoopClock(1_700_000_000.0))
    yield World(fake, fake, asyncio.sleep)


@asynccontextmanager
async def over_memory(make: Callable[[Clock], T], methods: Methods) -> AsyncIterator[World[T]]:
    """Call it through OAP/1 over a memory transport, on virtual time."""
    fake = make(LoopClock(1_700_000_000.0))
    server = OapServer(Inventory("svc"), OapServerOptions(), [serve(methods, fake)])

    async def dial(protocol):
        connection = protocol()
        return memory_pair(connection, server.protocol())[0], connection

    client = OapClient(Inventory("caller"), OapClientOptions(call_timeout_s=30.0), dial=dial)
    await server.start()
    try:
        yield World(Stub(client, methods), fake, asyncio.sleep)
    finally:
        await client.close()
        await server.close()


@asynccontextmanager
async def over_socket(make: Callable[[Clock], T], methods: Methods) -> AsyncIterator[World[T]]:
    """Call it through OAP/1 over a real Unix socket; time is a clock the test moves."""
    clock = VirtualClock()

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    fake = make(clock)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run" / "svc.sock"
        server = OapServer(Inventory("svc"), OapServerOptions(uds_path=path), [serve(methods, fake)])
        client = OapClient(Inventory("caller"), OapClientOptions(uds_path=path, call_timeout_s=60.0))
        await server.start()
        try:
            yield World(Stub(client, methods), fake, advance)
        finally:
            await client.close()
            await server.close()
