"""Disks that fill up, fail to sync or lose power: what was vouched for is there, and nothing else looks like it."""

from __future__ import annotations

import random

import pytest

from penstock.contracts.storage import Get, Head, Put
from penstock.kernel.errors import DownstreamUnavailable, NotFound, OverLimit
from penstock.rpc.storage_streams import get_stream, put_stream
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.engines.objects import SHARDS, ObjectFiles
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.testing.simdisk import SimDisk
from penstock.wire.ids import address_of
from tests.contracts.suite_storage import cut
from tests.services.storage.sim import PowerLoss, SimFiles, Stopping
from tests.services.storage.worlds import running

LARGE = random.Random(3).randbytes(3 * LEAF_BYTES + 77)
OPTIONS = StorageOptions()


async def read(service, address: str) -> bytes:
    return b"".join([piece async for piece in get_stream(service.api, address)])


@pytest.mark.parametrize("room", [0, 100, LEAF_BYTES, 2 * LEAF_BYTES + 5, 3 * LEAF_BYTES + 80])
async def test_full_disk_is_507_and_leaves_nothing(room: int) -> None:
    sim = SimDisk()
    async with running(OPTIONS, disk=SimFiles(sim)) as service:
        await service.api.put(Put(b"before"))
        sim.disk_full(room)
        with pytest.raises(OverLimit) as refused:
            await put_stream(service.api, cut(LARGE, 50_000))
        assert (refused.value.status, refused.value.limit) == (507, "disk")
        assert await read(service, address_of(b"before")) == b"before"
        assert (service.store.ledger.objects, service.store.ledger.used_bytes) == (1, 6)

        sim.disk_full(None)
        assert not (await put_stream(service.api, cut(LARGE, 50_000))).existed
        assert await read(service, address_of(LARGE)) == LARGE
    assert sim.listdir("tmp") == []


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("where", ["file", "directory"])
async def test_failed_sync_is_no_answer_and_the_next_put_starts_over(data: bytes, where: str) -> None:
    sim, address = SimDisk(), address_of(data)
    async with running(OPTIONS, disk=SimFiles(sim)) as service:
        sim.fail_fsync(None if where == "file" else address[3:5])
        with pytest.raises(DownstreamUnavailable) as failed:
            await service.api.put(Put(data))
        assert failed.value.facts["outcome"] == "unknown"
        with pytest.raises(NotFound):
            await service.api.head(Head(address))

        stored = await service.api.put(Put(data))
        assert not stored.existed  # a name that no sync vouches for was not taken for the object
        sim.power_loss()
        assert (await service.api.get(Get(address))).data == data
    assert (service.store.ledger.objects, service.store.ledger.used_bytes) == (1, len(data))


def put_all(objects: ObjectFiles, stored: list[bytes]) -> None:
    """Put small and large objects as the service does; note each when it is vouched for."""
    for number in range(3):
        small, large = b"small %d" % number, bytes([number]) * (LEAF_BYTES + 9)
        objects.store(address_of(small), small)
        stored.append(small)
        draft = objects.draft()
        objects.append(draft, large[:LEAF_BYTES])
        objects.publish(draft, large[LEAF_BYTES:], draft.manifest(large[LEAF_BYTES:]))
        stored.append(large)


def check_after_power_loss(sim: SimDisk, stored: list[bytes]) -> None:
    """Start again: what was vouched for is there, whatever is there is whole, and nothing is left over."""
    fresh = ObjectFiles(SimFiles(sim))
    opened = fresh.open()
    shards = [name for name in sim.listdir() if name in SHARDS]
    found = [fresh.find(f"b3:{name}") for shard in shards for name in sim.listdir(shard)]
    for each in found:
        fresh.verify(each)

    assert {address_of(data) for data in stored} <= {each.address for each in found}
    assert (opened.objects, opened.size) == (len(found), sum(each.size for each in found))
    assert sim.listdir("tmp") == []


def test_power_loss_at_every_call_keeps_what_was_vouched_for_and_shows_nothing_half() -> None:
    calls, ended = 0, False
    while not ended:
        sim, stored = SimDisk(), []
        disk = Stopping(SimFiles(sim), 10_000)
        objects = ObjectFiles(disk)
        objects.open()
        disk.left = calls
        try:
            put_all(objects, stored)
            ended = True
        except PowerLoss:
            sim.power_loss(random.Random(calls))
        check_after_power_loss(sim, stored)
        calls += 1
    assert calls > 25


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 100, 200, 258, 259, 260, 261])
def test_power_loss_while_opening_costs_nothing(calls: int) -> None:
    sim, stored = SimDisk(), []
    objects = ObjectFiles(SimFiles(sim))
    objects.open()
    put_all(objects, stored)
    SimFiles(sim).write("tmp/1f", 0, b"left", new=True, sync=True)
    sim.fsync_dir("tmp")
    with pytest.raises(PowerLoss):
        ObjectFiles(Stopping(SimFiles(sim), calls)).open()
    sim.power_loss()

    check_after_power_loss(sim, stored)


def test_engine_that_does_not_sync_the_directory_is_caught_by_the_power_loss() -> None:
    class Forgetful(SimFiles):
        def sync_dir(self, path: str) -> None:
            if path == "":  # the shard's own name, so that only what is in it is lost
                super().sync_dir(path)

    sim, stored = SimDisk(), []
    objects = ObjectFiles(Forgetful(sim))
    objects.open()
    put_all(objects, stored)
    sim.power_loss()

    assert ObjectFiles(SimFiles(sim)).open().objects < len(stored)


def test_object_seen_after_a_crash_is_durable_from_then_on() -> None:
    sim, data = SimDisk(), b"renamed, but its directory was not synced"
    disk = Stopping(SimFiles(sim), 10_000)
    objects = ObjectFiles(disk)
    objects.open()
    disk.left = 6  # stamp, write, rename in vain, make the directory, sync, rename
    with pytest.raises(PowerLoss):
        objects.store(address_of(data), data)
    objects = ObjectFiles(SimFiles(sim))  # the process was killed, the machine was not
    objects.open()
    assert not objects.store(address_of(data), data)  # there already: a put now answers that it is stored
    sim.power_loss()

    assert ObjectFiles(SimFiles(sim)).find(address_of(data)).data == data


async def test_end_in_good_order_spares_the_next_start_the_syncs() -> None:
    sim = SimDisk()
    for _ in range(2):
        async with running(OPTIONS, disk=SimFiles(sim)):
            assert "running" in sim.listdir()
        assert "running" not in sim.listdir()
