"""Disks that fill up, fail to sync or lose power: what was vouched for is there, and nothing else looks like it."""

from __future__ import annotations

import copy
import gc
import random

import pytest
from blake3 import blake3

from penstock.contracts.storage import Get, Head, Put
from penstock.kernel.errors import DownstreamUnavailable, NotFound, OverLimit
from penstock.rpc.storage_streams import get_stream, put_stream
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.engines.engine import ObjectEngine
from penstock.services.storage.engines.objects import SHARDS
from penstock.services.storage.engines.packs import StoreDamaged, read_packs
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.testing.simdisk import SimDisk
from penstock.wire.ids import address_of, format_address
from tests.contracts.suite_storage import cut
from tests.services.storage.sim import HeldSimFile, PowerLoss, SimFiles, Stopping, engine_on
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
        folder = "packs" if len(data) <= LEAF_BYTES else address[3:5]
        sim.fail_fsync(None if where == "file" else folder)
        with pytest.raises(DownstreamUnavailable) as failed:
            await service.api.put(Put(data))
        assert failed.value.facts["outcome"] == "unknown"
        with pytest.raises(NotFound):
            await service.api.head(Head(address))

        stored = await service.api.put(Put(data))
        assert not stored.existed  # a name that no sync vouches for was not taken for the object
        assert (await service.api.get(Get(address))).data == data
        lost = copy.deepcopy(sim)
        lost.power_loss()
        after = opened(SimFiles(lost))
        assert after.find(address).size == len(data)
        after.close()
        # The failed pack's file is closed with its last reference, and the error above holds one by its traceback.
        del failed, after
        gc.collect()
    assert (service.store.ledger.objects, service.store.ledger.used_bytes) == (1, len(data))


def put_all(engine: ObjectEngine, stored: list[bytes]) -> None:
    """Put small objects in groups, and large ones, as the service does; note each when it is vouched for."""
    for number in range(3):
        group = [b"small %d %d" % (number, each) * 90 for each in range(3)]
        assert engine.commit([(blake3(data).digest(), data) for data in group]) == ["new"] * 3
        stored += group
        large = bytes([number]) * (LEAF_BYTES + 9)
        draft = engine.files.draft()
        engine.files.append(draft, large[:LEAF_BYTES])
        engine.files.publish(draft, large[LEAF_BYTES:], draft.manifest(large[LEAF_BYTES:]))
        stored.append(large)


def opened(disk: SimFiles | Stopping) -> ObjectEngine:
    engine = engine_on(disk)
    engine.open()
    return engine


def check_after_power_loss(sim: SimDisk, stored: list[bytes]) -> None:
    """Start again: what was vouched for is there, whatever is there is whole, and nothing is left over."""
    fresh = engine_on(SimFiles(sim))
    at_start = fresh.open()
    shards = [name for name in sim.listdir() if name in SHARDS]
    names = [f"b3:{name}" for shard in shards for name in sim.listdir(shard)]
    names += [format_address(entry.digest) for pack in read_packs(SimFiles(sim))[1] for entry in pack.entries]
    found = [fresh.find(name) for name in names]
    for each in found:
        fresh.files.verify(each) if each.data is None else None

    assert {address_of(data) for data in stored} <= {each.address for each in found}
    assert (at_start.objects, at_start.size) == (len(found), sum(each.size for each in found))
    assert sim.listdir("tmp") == []
    further = b"stored after the power came back"
    assert fresh.commit([(blake3(further).digest(), further)]) == ["new"]
    assert opened(SimFiles(sim)).find(address_of(further)).data == further


def test_power_loss_at_every_call_keeps_what_was_vouched_for_and_shows_nothing_half() -> None:
    calls, ended = 0, False
    while not ended:
        for seed in range(3):
            sim, stored = SimDisk(), []
            disk = Stopping(SimFiles(sim), 10_000)
            engine = opened(disk)
            disk.left = calls
            try:
                put_all(engine, stored)
                ended = True
            except PowerLoss:
                sim.power_loss(random.Random(seed) if seed else None)
            check_after_power_loss(sim, stored)
        calls += 1
    assert calls > 40


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 5, 8, 12, 20, 100, 200, 268])
def test_power_loss_while_opening_costs_nothing(calls: int) -> None:
    sim, stored = SimDisk(), []
    put_all(opened(SimFiles(sim)), stored)
    SimFiles(sim).write("tmp/1f", 0, b"left", new=True, sync=True)
    sim.fsync_dir("tmp")
    with pytest.raises(PowerLoss):
        engine_on(Stopping(SimFiles(sim), calls)).open()
    sim.power_loss()

    check_after_power_loss(sim, stored)


class Forgetful(SimFiles):
    """A disk under an engine that forgets to sync directories, except the root's own names."""

    def sync_dir(self, path: str) -> None:
        if path == "":
            super().sync_dir(path)


def test_engine_that_does_not_sync_the_directory_is_caught_by_the_power_loss() -> None:
    sim, stored = SimDisk(), []
    put_all(opened(Forgetful(sim)), stored)
    sim.power_loss()

    with pytest.raises(StoreDamaged, match="pack 1 is missing"):
        opened(SimFiles(sim))


class Hasty(SimFiles):
    """A disk under an engine that answers before the sync of a pack."""

    def open(self, path: str, *, new: bool = False) -> HeldSimFile:
        file = super().open(path, new=new)
        file.sync = lambda: None
        return file


def test_engine_that_does_not_sync_its_packs_is_caught_by_the_power_loss() -> None:
    sim, data = SimDisk(), b"answered for, and not synced"
    hasty = opened(Hasty(sim))
    hasty.commit([(blake3(data).digest(), data)])
    sim.power_loss()

    with pytest.raises(NotFound):
        opened(SimFiles(sim)).find(address_of(data))


@pytest.mark.parametrize("data", [b"in a group that was not synced", b"x" * LEAF_BYTES])
def test_object_seen_after_a_crash_is_durable_from_then_on(data: bytes) -> None:
    sim = SimDisk()
    first, second = (blake3(b"first").digest(), b"first"), (blake3(data).digest(), data)
    disk = Stopping(SimFiles(sim), 10_000)
    engine = opened(disk)
    engine.commit([first])
    disk.left = 1  # the write, not the sync
    with pytest.raises(PowerLoss):
        engine.commit([second])
    del engine  # the process was killed, the machine was not
    engine = opened(SimFiles(sim))
    assert engine.commit([second]) == ["existed"]  # a put now answers that it is stored
    sim.power_loss()

    assert opened(SimFiles(sim)).find(address_of(data)).data == data


def test_group_whose_sync_failed_is_not_taken_for_durable_after_a_kill() -> None:
    sim, data = SimDisk(), b"its sync failed"
    engine = opened(SimFiles(sim))
    engine.commit([(blake3(b"first").digest(), b"first")])
    sim.fail_fsync("packs/00000001")
    assert isinstance(engine.commit([(blake3(data).digest(), data)])[0], OSError)
    del engine  # killed: the next start sees what the system still holds
    assert opened(SimFiles(sim)).commit([(blake3(data).digest(), data)]) == ["new"]
    sim.power_loss()

    assert opened(SimFiles(sim)).find(address_of(data)).data == data


def test_large_object_seen_after_a_crash_is_durable_from_then_on() -> None:
    sim = SimDisk()
    disk = Stopping(SimFiles(sim), 10_000)
    files = opened(disk).files
    draft = files.draft()
    files.append(draft, LARGE[:LEAF_BYTES])
    made = draft.manifest(LARGE[LEAF_BYTES : 2 * LEAF_BYTES])
    disk.left = 6  # stamp, write, rename in vain, make the directory, sync, rename
    with pytest.raises(PowerLoss):
        files.publish(draft, LARGE[LEAF_BYTES : 2 * LEAF_BYTES], made)
    assert opened(SimFiles(sim)).files.exists(made.address)
    sim.power_loss()

    opened(SimFiles(sim)).files.verify(opened(SimFiles(sim)).find(made.address))


async def test_end_in_good_order_spares_the_next_start_the_syncs() -> None:
    sim = SimDisk()
    for _ in range(2):
        async with running(OPTIONS, disk=SimFiles(sim)):
            assert "running" in sim.listdir()
        assert "running" not in sim.listdir()
