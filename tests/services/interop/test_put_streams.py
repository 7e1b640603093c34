"""Streamed puts: what they hold in memory, and what a broken one leaves."""

from __future__ import annotations

import asyncio
import socket
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.contracts import storage as s
from penstock.contracts.call import NOBODY
from penstock.kernel.clock import SYSTEM
from penstock.net.server.connection import Connection
from penstock.testing.contracts.memory_storage import MemoryStorage
from tests.services.interop.senders import SENDERS
from tests.services.interop.worlds import World, bridge, until

pytestmark = pytest.mark.real_loop

MIB = 1 << 20
OCTETS = b"Content-Type: application/octet-stream\r\n"


class Sink(MemoryStorage):
    """A store that counts what it is given and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.aborted = 0

    async def upload_append(self, request: s.UploadAppend, call=NOBODY) -> s.Upload:
        assert request.offset == self.size
        self.size += len(request.data)
        return s.Upload(request.upload_id, self.size)

    async def upload_finish(self, request: s.UploadFinish, call=NOBODY) -> s.Stored:
        return s.Stored("b3:" + "0" * 64, self.size, existed=False)

    async def upload_abort(self, request: s.UploadAbort, call=NOBODY) -> s.Done:
        self.aborted += 1
        return s.Done()


def _send(port: int, size: int) -> bytes:
    """Put so many bytes from a thread: a client that allocates nothing while it sends."""
    piece = memoryview(bytes(64 << 10))
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /put HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (OCTETS, size))
        for _ in range(size // len(piece)):
            client.sendall(piece)
        return client.recv(4096)


class Scale(Sink):
    """A sink that weighs, every 64 appends, what the bridge's own code has allocated and still holds.

    It does so when the connection has taken as much of the body as it may: a store that is slow for once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full: Callable[[], bool] = lambda: True
        self.appends = 0
        self.held: list[dict[str, int]] = []

    async def upload_append(self, request: s.UploadAppend, call=NOBODY) -> s.Upload:
        stored = await super().upload_append(request, call)
        self.appends += 1
        if not self.appends % 64:
            await until(self.full)
            self.held.append(_held_by_the_bridge())
        return stored


# Where the bytes of a body pass. A table elsewhere that grows meanwhile, a cache say, is not held for the put.
BODY_PATH = ("net/server", "wire/http1", "rpc/storage_streams", "services/interop/worker", "services/interop/routes")


def _held_by_the_bridge() -> dict[str, int]:
    """Return the buffers that the code on the body's way has made and holds, by their place; bytes without headers.

    The test's sender has buffers of its own. Timers and other small objects are no buffers.
    """
    ours = [tracemalloc.Filter(inclusive=True, filename_pattern=f"*/penstock/{part}*") for part in BODY_PATH]
    held: Counter[str] = Counter()
    for trace in tracemalloc.take_snapshot().filter_traces(ours).traces:
        if trace.size >= 1024:
            held[str(trace.traceback[0])] += trace.size - sys.getsizeof(b"")
    return held


def _takes_no_more(world: World) -> bool:
    """Tell whether the one connection has stopped reading its body, or has all of it."""
    core = world.service.listener._core
    assert core is not None
    (connection,) = core.caps.held
    assert isinstance(connection, Connection)
    intake = connection.inbox.intake
    return intake is None or intake.blocked


async def test_streamed_put_of_64_mib_holds_at_most_256_kib():
    storage = Scale()
    async with bridge(storage=storage) as world:
        loop = asyncio.get_running_loop()
        # Once before: whatever is made at the first put is not what a put holds.
        await loop.run_in_executor(None, _send, world.http.port, MIB)
        await until(lambda: not world.service.listener._core.caps.held)
        storage.size = storage.appends = 0
        storage.full = lambda: _takes_no_more(world)
        tracemalloc.start()
        try:
            answer = await loop.run_in_executor(None, _send, world.http.port, 64 * MIB)
        finally:
            tracemalloc.stop()

    # A chunk is at most 64 KiB, so there were 1024 appends or more.
    assert (answer[9:12], storage.size, len(storage.held) >= 16) == (b"202", 64 * MIB, True)
    most = max(storage.held, key=lambda held: sum(held.values()))
    assert sum(most.values()) <= 256 << 10, most


async def test_put_that_breaks_off_is_thrown_away_and_frees_its_place():
    storage = Sink()
    async with bridge(storage=storage, workers=2) as world:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", world.http.port)
            writer.write(b"POST /put HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (OCTETS, MIB))
            writer.write(bytes(MIB // 2))
            aborted = storage.aborted
            await until(lambda: storage.size)
            writer.transport.abort()
            await until(lambda aborted=aborted: storage.aborted > aborted)
            storage.size = 0
        answer = await world.http.ask("POST", "/put", b"x", ((b"Content-Type", b"application/octet-stream"),))

    assert (storage.aborted, answer.status) == (3, 202)


class StuckStore(MemoryStorage):
    """A store whose uploads stand still until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.stuck = 0

    async def upload_append(self, request: s.UploadAppend, call=NOBODY) -> s.Upload:
        self.stuck += 1
        await self.go.wait()
        return await super().upload_append(request, call)


async def test_eight_puts_that_stand_still_do_not_hold_a_webhook_back():
    storage = StuckStore()
    async with bridge(storage=storage, workers=16) as world:
        puts = [await asyncio.open_connection("127.0.0.1", world.http.port) for _ in range(8)]
        for number, (_, writer) in enumerate(puts):
            writer.write(b"POST /put HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (OCTETS, MIB))
            # Half of the senders have stopped in the middle of a body; the others fill whatever takes their bytes.
            writer.write(bytes([number]) * (160 << 10 if number % 2 else MIB))
        await until(lambda: storage.stuck == 8)

        # A put more finds no place, and webhooks are answered while all eight stand still.
        ninth = await world.http.ask("POST", "/put", b"x", ((b"Content-Type", b"application/octet-stream"),))
        kinds = ("github", "stripe", "slack_webhook", "standard_webhooks")
        hooks = [await world.http.hook(kind, SENDERS[kind].send(now=int(SYSTEM.wall()))) for kind in kinds]
        stuck = storage.stuck
        storage.go.set()
        for number, (_, writer) in enumerate(puts):
            if number % 2:
                writer.write(bytes([number]) * (MIB - (160 << 10)))
        answers = [(await reader.readline())[9:12] for reader, _ in puts]
        for _, writer in puts:
            writer.close()

    assert (ninth.status, {hook.status for hook in hooks}, stuck) == (429, {202}, 8)
    assert answers == [b"202"] * 8
