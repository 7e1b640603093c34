"""Objects through the gateway: the same ranges and conditions as at svc-storage, a damaged object is never a 200."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from penstock.contracts import storage as s
from penstock.contracts.call import Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.services.omnigate.own.downstream import Downstream, DownstreamOptions
from penstock.services.omnigate.own.objects import ObjectRoutes
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.engines.ram import RamStorageDisk
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.wire.ids import address_of
from tests.net.server.listener_kit import serving
from tests.services.storage.test_http import ADDRESS, CONDITIONS, DATA, TAG
from tests.services.storage.worlds import Answer, Http, running

pytestmark = pytest.mark.real_loop
LARGE = random.Random(7).randbytes(5 * LEAF_BYTES + 999)
LARGE_ADDRESS = address_of(LARGE)


class Watched:
    """The store's contract, and how much each read asked for."""

    def __init__(self, api: s.Storage) -> None:
        self.put, self.head = api.put, api.head
        self._get = api.get
        self.asked: list[int] = []
        # Called once, after the first read.
        self.after: Callable[[], None] | None = None

    async def get(self, request: s.Get, call: Call) -> s.Chunk:
        """Pass it on."""
        assert request.length is not None
        self.asked.append(request.length)
        chunk = await self._get(request, call)
        after, self.after = self.after, None
        if after is not None:
            after()
        return chunk


class Objects:
    """The gateway's routes in front of a store in memory."""

    def __init__(self, port: int, disk: RamStorageDisk, watched: Watched) -> None:
        self.http, self.disk, self.watched = Http(port), disk, watched

    async def get(self, address: str, **fields: str) -> Answer:
        """Ask for an object."""
        return await self.http.ask("GET", f"/v1/o/{address}", **fields)

    def flip(self, address: str, at: int) -> None:
        """Change one bit of an object's file, as a bad disk would."""
        path = f"{address[3:5]}/{address[3:]}"
        bit = self.disk.read(path, at, 1)[0] ^ 1
        self.disk.write(path, at, bytes([bit]))


@asynccontextmanager
async def objects(*stored: bytes) -> AsyncIterator[Objects]:
    """Run the routes over a store that holds these."""
    disk = RamStorageDisk()
    async with running(StorageOptions(), disk=disk) as service:
        for data in stored:
            await service.api.put(s.Put(data))
        watched = Watched(service.api)
        downstream = Downstream(Inventory("omnigate", LoopClock()), DownstreamOptions(service="svc-storage"))
        routes = ObjectRoutes(watched, downstream, chunk_s=5.0).routes()  # type: ignore[arg-type]
        async with serving(routes, {"host": "127.0.0.1"}) as site:
            gate = Objects(site.listener.port, disk, watched)
            try:
                yield gate
            finally:
                gate.http.close()
        await downstream.close()


async def test_ranges_and_conditions_are_the_stores_own() -> None:
    async with objects(DATA) as gate:
        for fields, status, body, part in CONDITIONS:
            got = await gate.get(ADDRESS, **fields)

            assert (got.status, got.headers.get("content-range")) == (status, part), fields
            assert body is None or got.body == body, fields
            assert status == 416 or got.headers["etag"] == TAG, fields


async def test_what_was_stored_is_never_to_be_taken_for_a_page() -> None:
    async with objects(DATA) as gate:
        got = await gate.get(ADDRESS)

    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("leaf", range(6))
async def test_a_large_object_that_is_damaged_anywhere_is_422_before_a_byte_of_it_is_sent(leaf: int) -> None:
    async with objects(LARGE) as gate:
        gate.flip(LARGE_ADDRESS, leaf * LEAF_BYTES + 17)
        got = await gate.get(LARGE_ADDRESS)

    assert (got.status, json.loads(got.body)["code"]) == (422, "integrity")


async def test_an_object_comes_whole_whatever_its_size_and_is_asked_for_in_small_pieces() -> None:
    sizes = [LEAF_BYTES * leaves + more for leaves in range(5) for more in (0, 1, LEAF_BYTES - 1)]
    async with objects(*(LARGE[:size] for size in sizes)) as gate:
        for size in sizes:
            got = await gate.get(address_of(LARGE[:size]))

            assert (got.status, got.body == LARGE[:size]) == (200, True), size
    assert max(gate.watched.asked) <= 3 * LEAF_BYTES


async def test_any_range_of_a_large_object_is_its_slice() -> None:
    async with objects(LARGE) as gate:
        for start in (0, 1, LEAF_BYTES - 1, 2 * LEAF_BYTES + 3):
            for end in (3 * LEAF_BYTES, 4 * LEAF_BYTES + 5, len(LARGE)):
                got = await gate.get(LARGE_ADDRESS, Range=f"bytes={start}-{end - 1}")

                assert (got.status, got.body == LARGE[start:end]) == (206, True), (start, end)


async def test_a_bit_that_rots_while_an_object_is_sent_cuts_the_body_before_the_wrong_bytes() -> None:
    async with objects(LARGE) as gate:
        gate.watched.after = lambda: gate.flip(LARGE_ADDRESS, 4 * LEAF_BYTES + 17)
        reader, writer = await gate.http.open()
        writer.write(f"GET /v1/o/{LARGE_ADDRESS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionResetError):
            body = await reader.read(-1)

    assert head.startswith(b"HTTP/1.1 200")
    assert body == LARGE[: len(body)]
    assert len(body) <= 4 * LEAF_BYTES
