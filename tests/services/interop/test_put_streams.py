"""Streamed puts: what they hold in memory, and what a broken one leaves."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc

import pytest

from penstock.contracts import storage as s
from penstock.contracts.call import NOBODY
from penstock.testing.contracts.memory_storage import MemoryStorage
from tests.services.interop.worlds import bridge, until

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


# Sender and bridge share a process here: on a busy machine what the sender holds is counted too.
@pytest.mark.full
async def test_streamed_put_of_64_mib_holds_at_most_256_kib():
    storage = Sink()
    async with bridge(storage=storage) as world:
        loop = asyncio.get_running_loop()
        # Once before: whatever is made at the first put is not what a put holds.
        await loop.run_in_executor(None, _send, world.http.port, MIB)
        storage.size = 0
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            answer = await loop.run_in_executor(None, _send, world.http.port, 64 * MIB)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert (answer[9:12], storage.size) == (b"202", 64 * MIB)
    # The sender's own piece is 64 KiB of it.
    assert peak - before <= (256 + 64) << 10, f"{(peak - before) >> 10} KiB"


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
