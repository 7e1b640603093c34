"""Real nodes on loopback for the tests of svc-dht: whole services with their supervisors, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config import Sources, listener_settings, load, node_schema
from penstock.kernel.deadline import pause
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.dht.config import TABLE, DhtOptions
from penstock.services.dht.peers.link import PeerLink
from penstock.services.dht.protocol.envelope import DhtEnvelope, Opcode, decode_envelope, encode_envelope
from penstock.services.dht.protocol.frames import FrameSplitter
from penstock.services.dht.service import SERVICE, DhtService, DhtSurroundings

KEY = "ab" * 32
WAIT_S = 60.0


def options(**changed: object) -> DhtOptions:
    """Return options for a node on loopback with both listeners on ports the system chooses."""
    settings = load(node_schema(TABLE), Sources(sets=("node.ephemeral_ports=true",)))
    return DhtOptions(listener=listener_settings(settings, "dht"), **changed)  # type: ignore[arg-type]


@dataclass
class RunningNode:
    """A service and its supervisor."""

    service: DhtService
    supervisor: Supervisor
    inventory: Inventory

    @property
    def address(self) -> tuple[str, int]:
        """Return where peers reach it."""
        return "127.0.0.1", self.service.state.port

    @property
    def own(self) -> int:
        """Return its id."""
        return self.service.state.own

    def count(self, name: str, **labels: str) -> float:
        """Read a metric."""
        return self.inventory.metrics.value(name, **labels)

    async def stop(self) -> None:
        """Drain and let go of everything."""
        await self.supervisor.drain()
        await self.service.close()


async def start(chosen: DhtOptions, around: DhtSurroundings | None = None) -> RunningNode:
    """Start a node."""
    inventory = Inventory(SERVICE)
    service = DhtService(inventory, chosen, around)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    return RunningNode(service, supervisor, inventory)


async def until(done: Callable[[], bool], what: str) -> None:
    """Wait until something is so; nothing here depends on how long that takes."""
    for _ in range(int(WAIT_S / 0.01)):
        if done():
            return
        await pause("test", 0.01)
    raise AssertionError(f"{what} did not happen")


@dataclass
class SmallSwarm:
    """Some nodes that know each other."""

    nodes: list[RunningNode] = field(default_factory=list)

    async def grow(self, count: int, directory: Path | None = None) -> None:
        """Add nodes one after the other; each joins through the first ones."""
        for _ in range(count):
            seeds = tuple(node.address for node in self.nodes[:3])
            node = await start(options(seeds=seeds, directory=directory))
            self.nodes.append(node)
            await until(lambda: node.service.state.readiness.ready, "joining")  # noqa: B023 - waited for here

    def __getitem__(self, index: int) -> RunningNode:
        return self.nodes[index]


@asynccontextmanager
async def swarm(count: int) -> AsyncIterator[SmallSwarm]:
    """Run some nodes for a block."""
    nodes = SmallSwarm()
    try:
        await nodes.grow(count)
        yield nodes
    finally:
        for node in nodes.nodes:
            await node.stop()


class RawPeer:
    """A peer that proved itself and then says what a test wants, byte for byte."""

    def __init__(self, link: PeerLink, writer: RunningNode) -> None:
        """Hold the link of a node that serves as the other end."""
        self.link = link
        self.node = writer

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        transport = self.link._transport
        assert transport is not None
        transport.write(data)

    async def ask(self, opcode: int, payload: bytes) -> object:
        """Send a request through the link and wait for what comes of it."""
        reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def settle(value: object) -> None:
            if not reply.done():
                reply.set_result(value)

        self.link.request(opcode, payload, settle, 5.0)
        async with asyncio.timeout(WAIT_S):
            return await reply


@asynccontextmanager
async def raw_peer(node: RunningNode) -> AsyncIterator[RawPeer]:
    """Connect to a node as a proven peer that is in nobody's table."""
    other = await start(options())
    try:
        link = await other.service.pool.dial(*node.address)
        yield RawPeer(link, other)
    finally:
        await other.stop()


async def unproven(node: RunningNode, *sent: bytes) -> list[DhtEnvelope]:
    """Connect without proving anything, send bytes, and return what came until the node hung up."""
    reader, writer = await asyncio.open_connection(*node.address)
    for data in sent:
        writer.write(data)
    splitter, found = FrameSplitter(), list[DhtEnvelope]()
    try:
        async with asyncio.timeout(WAIT_S):
            while data := await reader.read(65_536):
                found += [decode_envelope(body) for body in splitter.feed(data)]
    except ConnectionError:
        pass
    finally:
        writer.close()
    return found


def request(opcode: int, payload: bytes) -> bytes:
    """Encode a request as a frame."""
    return encode_envelope(opcode, 1, 1, payload, 0)


__all__ = [
    "KEY",
    "Opcode",
    "RawPeer",
    "RunningNode",
    "SmallSwarm",
    "options",
    "raw_peer",
    "request",
    "start",
    "swarm",
    "unproven",
    "until",
]
