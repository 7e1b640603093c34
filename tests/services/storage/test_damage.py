"""Damaged files: whatever bit is wrong, no wrong byte is ever handed out, and the same bytes put again heal it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.contracts.storage import VOUCHED_BYTES, Get
from penstock.kernel.errors import Integrity
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.engines.disk import FileStamp
from penstock.services.storage.engines.ram import RamStorageDisk
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.testing import VirtualClock
from penstock.testing.simdisk import SimDisk
from penstock.wire.ids import address_of
from tests.services.storage.sim import SimFiles
from tests.services.storage.worlds import Http, file_of, make_loose, running, served

pytestmark = pytest.mark.real_loop
LARGE = random.Random(5).randbytes(4 * LEAF_BYTES + 999)
ADDRESS = address_of(LARGE)
MANIFEST = len(LARGE)
FOOTER = MANIFEST + 5 * 32
# One bit in each region of the file.
REGIONS = {
    "first byte": 0,
    "first leaf": 1000,
    "end of a leaf": LEAF_BYTES - 1,
    "start of a leaf": LEAF_BYTES,
    "middle": 2 * LEAF_BYTES + 5,
    "last leaf": 4 * LEAF_BYTES + 500,
    "last byte": MANIFEST - 1,
    "digest of the first leaf": MANIFEST,
    "digest of the last leaf": FOOTER - 1,
    "magic": FOOTER + 3,
    "size": FOOTER + 23,
    "count": FOOTER + 31,
    "seal": FOOTER + 40,
    "end of the seal": FOOTER + 63,
}


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


async def check_part(http: Http, at: int, start: int) -> None:
    """Read a small part: right where the damage is elsewhere, refused where it is."""
    part = await http.get(ADDRESS, Range=f"bytes={start}-{start + 999}")
    hit = at >= MANIFEST or start // LEAF_BYTES <= at // LEAF_BYTES <= (start + 999) // LEAF_BYTES
    assert part.status == (422 if hit else 206), (at, start)
    assert hit or part.body == LARGE[start : start + 1000]


@pytest.mark.parametrize("before", ["never read", "read before"])
async def test_flipped_bit_is_422_for_the_whole_and_never_wrong_for_a_part(tmp_path: Path, before: str) -> None:
    async with served(tmp_path) as (service, http):
        for name, at in REGIONS.items():
            assert (await http.put(LARGE)).status == 201, name  # it heals what the last round did
            if before == "read before":
                assert (await http.get(ADDRESS)).body == LARGE
            flip(file_of(tmp_path, ADDRESS), at)
            got = await http.get(ADDRESS)
            assert (got.status, b'"integrity"' in got.body) == (422, True), name
            for start in range(0, len(LARGE), LEAF_BYTES // 2):
                await check_part(http, at, start)
            head = await http.ask("HEAD", f"/o/{ADDRESS}")

            assert head.status == (422 if at >= MANIFEST else 200), name
        for reason in ("manifest", "payload"):
            assert service.store.inventory.metrics.value("integrity_fail_total", reason=reason) > 0


SHAPES = {
    "cut by a byte": lambda content: content[:-1],
    "cut to a leaf": lambda content: content[:LEAF_BYTES],
    "cut to its bytes": lambda content: content[:MANIFEST],
    "empty": lambda content: b"",
    "a byte more": lambda content: content + b"\0",
    "leaves swapped": lambda content: (
        content[LEAF_BYTES : 2 * LEAF_BYTES] + content[:LEAF_BYTES] + content[2 * LEAF_BYTES :]
    ),
    "a leaf less": lambda content: content[LEAF_BYTES:],
    "zeros": lambda content: bytes(len(content)),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_file_of_another_shape_is_422(tmp_path: Path, shape) -> None:
    async with served(tmp_path) as (_, http):
        await http.put(LARGE)
        file_of(tmp_path, ADDRESS).write_bytes(shape(file_of(tmp_path, ADDRESS).read_bytes()))

        assert (await http.get(ADDRESS)).status == 422
        assert (await http.get(ADDRESS, Range="bytes=0-9")).status in (422, 206)


async def test_file_of_another_object_is_422(tmp_path: Path) -> None:
    other = bytes(len(LARGE))
    async with served(tmp_path) as (_, http):
        for data in (LARGE, other):
            await http.put(data)
        file_of(tmp_path, ADDRESS).write_bytes(file_of(tmp_path, address_of(other)).read_bytes())

        for fields in ({}, {"Range": "bytes=0-9"}):
            assert (await http.get(ADDRESS, **fields)).status == 422


async def test_every_flipped_bit_of_a_small_object_is_422(tmp_path: Path) -> None:
    data = b"hi you"
    path = make_loose(tmp_path, data)
    async with served(tmp_path) as (_, http):
        for bit in range(len(data) * 8):
            path.write_bytes(bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(data)))
            for fields in ({}, {"Range": "bytes=0-0"}):
                assert (await http.get(address_of(data), **fields)).status == 422
            assert (await http.ask("HEAD", f"/o/{address_of(data)}")).status == 422


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
async def test_same_bytes_put_again_heal_a_damaged_object(tmp_path: Path, data: bytes) -> None:
    if data != LARGE:
        make_loose(tmp_path, data)
    async with served(tmp_path) as (service, http):
        for path in ("/o", f"/o/{address_of(data)}"):
            await http.put(data)
            flip(file_of(tmp_path, address_of(data)), 3)
            again = await http.put(data, path)

            assert again.status == 201
            assert (await http.get(address_of(data))).body == data
        assert service.store.outcomes["healed"].value == 2
        assert (service.store.ledger.objects, service.store.ledger.used_bytes) == (1, len(data))


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_what_is_no_plain_file_is_422_holds_up_nobody_and_is_healed(
    tmp_path: Path, what: str, data: bytes
) -> None:
    secret, stored = tmp_path / "secret", tmp_path / "stored"
    secret.write_bytes(data)
    if data != LARGE:
        make_loose(stored, data)
    async with served(stored) as (service, http):
        await http.put(data)
        path = file_of(stored, address_of(data))
        path.unlink()
        path.symlink_to(secret) if what == "link" else os.mkfifo(path)
        readers = service.store.options.io_threads + 1
        answers = [(await http.get(address_of(data))).status for _ in range(readers)]

        assert answers == [422] * readers
        assert (await http.put(data)).status == 201
        assert (await http.get(address_of(data))).body == data
        assert (path.is_file(), path.is_symlink(), secret.read_bytes() == data) == (True, False, True)


async def test_bit_that_rots_after_the_check_cuts_the_body_before_the_wrong_leaf() -> None:
    sim = SimDisk()
    async with served(disk=SimFiles(sim)) as (_, http):
        await http.put(LARGE)
        assert (await http.get(ADDRESS)).body == LARGE
        sim.flip_bit(f"{ADDRESS[3:5]}/{ADDRESS[3:]}", (3 * LEAF_BYTES + 5) * 8)  # the file's stamp stays
        reader, writer = await http.open()
        writer.write(f"GET /o/{ADDRESS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        sent = await reader.read(len(LARGE))
        while piece := await reader.read(len(LARGE)):
            sent += piece

        assert b"200 OK" in head
        assert len(sent) <= 3 * LEAF_BYTES
        assert LARGE.startswith(sent)


class Coarse(RamStorageDisk):
    """A file system whose clock ticks every ten milliseconds: two changes within a tick leave one stamp."""

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__()
        self._wall = wall
        self._changed_ns: dict[str, int] = {}

    def write(self, path: str, offset: int, data: bytes | memoryview, *, new: bool = False, sync: bool = False) -> None:
        super().write(path, offset, data, new=new, sync=sync)
        self._changed_ns[path] = int(self._wall() * 100) * 10_000_000

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._changed_ns[new] = int(self._wall() * 100) * 10_000_000

    def stamp(self, path: str) -> FileStamp:
        return super().stamp(path)._replace(inode=7, modified_ns=7, changed_ns=self._changed_ns[path])


@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.02, 1.0])
async def test_damage_within_one_tick_of_the_file_systems_clock_is_seen(pause_s: float) -> None:
    clock = VirtualClock()
    disk = Coarse(clock.wall)
    async with running(StorageOptions(), disk=disk, clock=clock) as service:
        await service.store.put(LARGE, None)
        clock.advance(pause_s)
        before = await service.store.has(ADDRESS)
        disk.write(f"{ADDRESS[3:5]}/{ADDRESS[3:]}", LEAF_BYTES, bytes([LARGE[LEAF_BYTES] ^ 1]))
        after = await service.store.has(ADDRESS)

    assert (before, after) == (True, False)


async def test_contract_refuses_damaged_bytes_too(tmp_path: Path) -> None:
    async with running(StorageOptions(directory=tmp_path)) as service:
        await service.store.put(LARGE, None)
        flip(file_of(tmp_path, ADDRESS), LEAF_BYTES + 1)

        assert (await service.api.get(Get(ADDRESS, 0, 10))).data == LARGE[:10]
        for request in (Get(ADDRESS, LEAF_BYTES, 10), Get(ADDRESS)):
            with pytest.raises(Integrity):
                await service.api.get(request)


async def test_read_that_vouches_is_refused_wherever_the_object_is_damaged(tmp_path: Path) -> None:
    async with running(StorageOptions(directory=tmp_path)) as service:
        await service.store.put(LARGE, None)
        flip(file_of(tmp_path, ADDRESS), MANIFEST - 1)

        with pytest.raises(Integrity):
            await service.api.get(Get(ADDRESS, LEAF_BYTES // 2, VOUCHED_BYTES))
