"""Large, slow and broken-off transfers: bounded memory, bounded time, nothing left behind."""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from penstock.contracts.storage import Put
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.testing import until
from penstock.wire.ids import address_of
from tests.services.storage.process import Server
from tests.services.storage.worlds import LISTENER, Http, running, served, temporary_files

pytestmark = pytest.mark.real_loop
MIB = 1 << 20
HEAD = b"PUT /o HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
DATA = random.Random(9).randbytes(5 * LEAF_BYTES)


async def put_large(port: int, seed: int, size: int) -> str:
    """Put an object that is made on the way, so that this process holds none of it."""
    http, dice, whole = Http(port), random.Random(seed), blake3()
    block = dice.randbytes(MIB)
    _, writer = await http.open()
    writer.write(HEAD % size)
    for number in range(size // MIB):
        piece = number.to_bytes(8, "big") + block[8:]
        whole.update(piece)
        writer.write(piece)
        await writer.drain()
    answer = await http.answer()
    http.close()
    assert answer.status == 201
    return f"b3:{whole.hexdigest()}"


async def get_large(port: int, address: str) -> str:
    """Read an object and say what it was."""
    http, whole = Http(port), blake3()
    reader, writer = await http.open()
    writer.write(f"GET /o/{address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    while piece := await reader.read(MIB):
        whole.update(piece)
    http.close()
    return f"b3:{whole.hexdigest()}"


async def test_four_large_puts_and_gets_at_once_stay_within_16_mib(tmp_path: Path) -> None:
    server = Server(tmp_path, f"bytes_max={1 << 30}")
    server.start()
    await get_large(server.port, await put_large(server.port, 99, 2 * MIB))
    server.forget_peak()
    before = server.resident_bytes()
    addresses = await asyncio.gather(*(put_large(server.port, seed, 64 * MIB) for seed in range(4)))
    assert server.resident_bytes("VmHWM") - before < 16 * MIB
    got = await asyncio.gather(*(get_large(server.port, address) for address in addresses))

    assert got == addresses
    assert server.resident_bytes("VmHWM") - before < 16 * MIB
    assert server.end(signal.SIGTERM) == 0


async def test_client_that_leaves_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, http):
        store = service.store
        for sent in (0, 10, LEAF_BYTES, LEAF_BYTES + 1, 4 * LEAF_BYTES):
            _, writer = await http.open()
            writer.write(HEAD % len(DATA) + DATA[:sent])
            await writer.drain()
            await until(lambda: store.puts.in_use == 1)
            http.close()
            await until(lambda: store.puts.in_use == 0)

            assert temporary_files(tmp_path) == []
            assert (store.ledger.used_bytes, store.ledger.reserved_bytes) == (0, 0)
        assert (await http.put(DATA)).status == 201


async def test_slow_uploader_is_cut_off_and_holds_up_nobody(tmp_path: Path) -> None:
    async with served(tmp_path, listener=replace(LISTENER, read_timeout_s=2.0)) as (service, http):
        slow = Http(http.port)
        _, writer = await slow.open()
        writer.write(HEAD % len(DATA) + DATA[: 2 * LEAF_BYTES])
        await until(lambda: service.store.puts.in_use == 1)
        assert (await http.put(b"meanwhile")).status == 201
        answer = await slow.answer()
        slow.close()

        assert (answer.status, b'"timeout"' in answer.body) == (408, True)
        await until(lambda: service.store.puts.in_use == 0)
        assert temporary_files(tmp_path) == []
        assert service.store.ledger.used_bytes == len(b"meanwhile")


async def test_upload_that_drips_is_cut_by_its_deadline(tmp_path: Path) -> None:
    async with served(tmp_path, transfer_deadline_s=0.5) as (service, http):
        _, writer = await http.open()
        writer.write(HEAD % len(DATA))
        dripping = asyncio.create_task(_drip(writer))
        answer = await http.answer()
        dripping.cancel()

        assert answer.status == 504
        await until(lambda: service.store.puts.in_use == 0)
        assert temporary_files(tmp_path) == []


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(DATA[:100])
        await asyncio.sleep(0.02)


async def test_reader_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, http):
        await http.put(DATA)
        reader, writer = await http.open()
        writer.write(f"GET /o/{address_of(DATA)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 4)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        http.close()

        await until(lambda: service.store.gets.in_use == 0)
        assert (await http.get(address_of(DATA))).body == DATA


@pytest.mark.parametrize(
    ("data", "steps"), [*((DATA, each) for each in range(0, 44, 4)), *((DATA[:99], each) for each in range(6))]
)
async def test_put_cancelled_at_any_step_holds_nothing_and_can_be_repeated(
    tmp_path: Path, data: bytes, steps: int
) -> None:
    async with running(StorageOptions(directory=tmp_path)) as service:
        store = service.store
        put = asyncio.create_task(store.put(data, None))
        for _ in range(steps):
            await asyncio.sleep(0)
        put.cancel()
        await asyncio.wait([put])
        await until(lambda: store.puts.in_use == 0 and not store.discards.depth)

        stored = await service.api.put(Put(data))
        assert stored.address == address_of(data)
        assert (store.ledger.objects, store.ledger.used_bytes, store.ledger.reserved_bytes) == (1, len(data), 0)
    assert temporary_files(tmp_path) == []


async def test_drain_answers_the_put_that_was_admitted(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, http):
        _, writer = await http.open()
        writer.write(HEAD % len(DATA) + DATA[:LEAF_BYTES])
        await until(lambda: service.store.puts.in_use == 1)
        drained = asyncio.create_task(service.supervisor.drain(25.0))
        await until(lambda: service.listener.phase == "draining")
        refused = Http(http.port)
        assert (await refused.put(b"new")).status == 503
        writer.write(DATA[LEAF_BYTES:])
        answer = await http.answer()

        assert (answer.status, answer.headers["connection"]) == (201, "close")
        assert (await drained).clean
        refused.close()
