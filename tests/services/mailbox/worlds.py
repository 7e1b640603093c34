"""A running mailbox for a test: the real service under its supervisor, on any engine, on virtual or real time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.contracts.mailbox_rules import METHODS
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.net.promise import answer_of
from penstock.rpc.oap import Stub, serve
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions, ShardRules
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.jobs import RequestMeta
from penstock.services.mailbox.service import SERVICE, MailboxService
from penstock.services.mailbox.shards.eviction import make_room
from penstock.testing.loop import VirtualLoop
from penstock.testing.transport import memory_pair
from tests.contracts.worlds import World

# What a test needs to begin a call in the same step, to wait for it, and to make messages leave RAM.
__all__ = ["RequestMeta", "answer_of", "make_room"]

WALL = 1_700_000_000.0
_BOUNDS = {
    "global_inflight": "global_inflight",
    "backlog_messages_max": "backlog_messages",
    "backlog_bytes_max": "backlog_bytes",
}


def mailbox_options(wishes: dict[str, object], **more: object) -> MailboxOptions:
    """Turn a test's wishes into options."""
    bounds = MailboxBounds(**{_BOUNDS[name]: value for name, value in wishes.items() if name in _BOUNDS})
    rules = ShardRules(max_attempts=wishes.get("max_attempts", 5))
    rest = {name: value for name, value in wishes.items() if name not in _BOUNDS and name != "max_attempts"}
    return MailboxOptions(bounds=bounds, rules=rules, **rest, **more)


def make_engine(kind: str, directory: Path):
    """Make an engine for a test."""
    return MemoryEngine(bytes(32)) if kind == "memory" else SqliteEngine(directory, fsync=False, wal_bytes=1 << 20)


class PatientOperator:
    """The contract, but a redrive is waited for: the suite looks at once, and 202 only promises."""

    def __init__(self, service: MailboxService) -> None:
        self._service = service

    def __getattr__(self, name: str):
        return getattr(self._service.api, name)

    async def reprocess(self, request, *call):
        answer = await self._service.api.reprocess(request, *call)
        while self._service.reprocessor.open:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.001)
        return answer


def drain_limit_s() -> float | None:
    """Bound a drain by the service's own deadline on virtual time; on the real clock the machine may be busy."""
    return None if isinstance(asyncio.get_running_loop(), VirtualLoop) else 25.0


@asynccontextmanager
async def running(engine, options: MailboxOptions, clock=None, **more: object) -> AsyncIterator[MailboxService]:
    """Run the service, and end it in good order."""
    inventory = Inventory(SERVICE, clock or LoopClock(WALL))
    service = MailboxService(inventory, options, engine=engine, **more)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    service.supervisor = supervisor
    service.until_ready = lambda: _until_ready(service)
    try:
        yield service
    finally:
        report = await supervisor.drain(drain_limit_s())
        await service.close()
        assert report.clean, report


async def _until_ready(service: MailboxService) -> None:
    while not service.state.ready:  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(0.05)


@asynccontextmanager
async def mailbox_world(kind: str, **wishes: object) -> AsyncIterator[World]:
    """Call the service's own contract object."""
    with tempfile.TemporaryDirectory() as directory:
        async with running(make_engine(kind, Path(directory)), mailbox_options(wishes)) as service:
            yield World(PatientOperator(service), service, asyncio.sleep)


@asynccontextmanager
async def mailbox_over_oap(kind: str, **wishes: object) -> AsyncIterator[World]:
    """Call it through OAP/1 over a memory transport."""
    async with mailbox_world(kind, **wishes) as world:
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
