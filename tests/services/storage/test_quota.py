"""The quota: promised before it is taken, never passed, and the same after a restart."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts.storage import Put, UploadAppend, UploadOpen
from penstock.kernel.errors import Busy, OverLimit, PenstockError
from penstock.kernel.sync_pace import FAST_IN_A_ROW
from penstock.rpc.storage_streams import put_stream
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.engines.ram import RamStorageDisk, RamStorageFile
from penstock.services.storage.ledger import QuotaLedger
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.services.storage.pack_writer import LOOP_OBJECTS_MAX
from tests.contracts.suite_storage import cut
from tests.services.storage.worlds import running, temporary_files


@given(st.lists(st.tuples(st.sampled_from(["reserve", "release", "store"]), st.integers(1, 60)), max_size=60))
def test_stored_and_promised_bytes_never_pass_the_quota(steps: list[tuple[str, int]]) -> None:
    ledger, promised = QuotaLedger(100), []
    for what, size in steps:
        if what == "reserve":
            if ledger.used_bytes + ledger.reserved_bytes + size <= 100:
                ledger.reserve(size)
                promised.append(size)
                continue
            with pytest.raises(OverLimit) as full:
                ledger.reserve(size)
            assert (full.value.status, full.value.limit) == (507, "storage")
        elif promised:
            (ledger.release if what == "release" else ledger.stored)(promised.pop())

        assert 0 <= ledger.used_bytes + ledger.reserved_bytes <= 100
        assert ledger.reserved_bytes == sum(promised)


def test_quota_of_zero_is_off() -> None:
    ledger = QuotaLedger(0)
    ledger.reserve(1 << 50)

    assert ledger.reserved_bytes == 1 << 50


@pytest.mark.parametrize("size", [1000, LEAF_BYTES + 1000])
async def test_puts_at_the_same_moment_never_pass_the_quota(tmp_path: Path, size: int) -> None:
    options = StorageOptions(directory=tmp_path, bytes_max=5 * size + 10)
    async with running(options) as service:
        puts = [put_stream(service.api, cut(bytes([number]) * size, 40_000)) for number in range(20)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        refused = [each for each in results if isinstance(each, OverLimit)]

        assert (len(refused), {each.limit for each in refused}) == (15, {"storage"})
        assert service.store.ledger.used_bytes == 5 * size
    assert temporary_files(tmp_path) == []


async def test_what_is_stored_counts_after_a_restart_and_what_was_left_does_not(tmp_path: Path) -> None:
    options = StorageOptions(directory=tmp_path, bytes_max=LEAF_BYTES + 2000)
    async with running(options) as service:
        await service.api.put(Put(b"x" * 1000))
        await service.api.put(Put(b"y" * (LEAF_BYTES + 500)))
    (tmp_path / "tmp" / "1f").write_bytes(b"left by a crash")

    async with running(options) as service:
        ledger = service.store.ledger
        assert (ledger.objects, ledger.used_bytes) == (2, LEAF_BYTES + 1500)
        assert temporary_files(tmp_path) == []
        with pytest.raises(OverLimit):
            await service.api.put(Put(b"z" * 501))
        assert not (await service.api.put(Put(b"z" * 500))).existed


async def test_unfinished_upload_holds_its_room_and_gives_it_back_when_nobody_goes_on(tmp_path: Path) -> None:
    options = StorageOptions(directory=tmp_path, bytes_max=3 * LEAF_BYTES, upload_idle_s=60.0)
    async with running(options) as service:
        upload = (await service.api.upload_open(UploadOpen())).upload_id
        await service.api.upload_append(UploadAppend(upload, 0, bytes(2 * LEAF_BYTES)))
        with pytest.raises(OverLimit):
            await service.api.put(Put(b"x" * (LEAF_BYTES + 1)))
        await asyncio.sleep(55)
        await service.api.upload_append(UploadAppend(upload, 2 * LEAF_BYTES, b"x"))
        await asyncio.sleep(55)
        assert service.store.ledger.reserved_bytes == 2 * LEAF_BYTES + 1  # it was used meanwhile
        await asyncio.sleep(15)

        assert service.store.ledger.reserved_bytes == 0
        assert not (await service.api.put(Put(b"x" * (LEAF_BYTES + 1)))).existed


async def test_places_for_puts_are_bounded_and_come_back(tmp_path: Path) -> None:
    options = StorageOptions(directory=tmp_path, puts_max=2, committers=1)
    async with running(options) as service:
        puts = [service.api.put(Put(b"%d" % number)) for number in range(6)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        refused = [each for each in results if isinstance(each, Busy)]
        assert len(refused) == 4
        assert service.store.puts.in_use == 0

        assert not (await service.api.put(Put(b"later"))).existed


async def test_small_put_that_is_withdrawn_before_it_is_taken_gives_everything_back() -> None:
    async with running(StorageOptions()) as service:
        store = service.store
        withdrawn, kept = store.put_small(b"withdrawn", None), store.put_small(b"kept", None)
        withdrawn.cancel()
        assert (store.puts.in_use, store.ledger.reserved_bytes) == (1, 4)

        assert not (await kept.wait()).existed
        assert (store.ledger.objects, store.ledger.used_bytes, store.puts.in_use) == (1, 4, 0)


class HeldFile(RamStorageFile):
    """A file whose sync waits until it is let go."""

    def __init__(self, content: bytearray, disk: Held) -> None:
        super().__init__(content)
        self._disk = disk

    def sync(self) -> None:
        self._disk.reached.set()
        self._disk.go.wait(20)


class Held(RamStorageDisk):
    """A disk with such files."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def open(self, path: str, *, new: bool = False) -> HeldFile:
        super().open(path, new=new)
        return HeldFile(self._files[path], self)


@pytest.mark.real_loop
async def test_object_whose_writer_dies_at_work_counts_because_it_may_become_durable() -> None:
    disk = Held()
    async with running(StorageOptions(), disk=disk) as service:
        put = asyncio.create_task(service.api.put(Put(b"in doubt")))
        while not disk.reached.is_set():  # noqa: ASYNC110 - a thread tells it
            await asyncio.sleep(0.005)
        writer = next(child for child in service.supervisor.children if child.spec.name == "pack_writer")
        assert writer.kill()
        await asyncio.wait([put])
        assert isinstance(put.exception(), PenstockError)
        disk.go.set()

        assert (service.store.ledger.used_bytes, service.store.ledger.reserved_bytes) == (8, 0)
        assert (await service.api.put(Put(b"in doubt"))).existed


@pytest.mark.real_loop
async def test_nothing_is_appended_on_the_loop_while_a_call_that_was_given_up_is_at_work() -> None:
    disk = Held()
    disk.go.set()
    async with running(StorageOptions(), disk=disk) as service:
        await service.api.put(Put(b"before"))
        for _ in range(FAST_IN_A_ROW):
            service.pack_writer.pace.note(0.0)
        disk.go.clear()
        disk.reached.clear()
        many = [service.store.put_small(b"many %d" % number, None) for number in range(LOOP_OBJECTS_MAX + 1)]
        while not disk.reached.is_set():  # noqa: ASYNC110 - a thread tells it
            await asyncio.sleep(0.005)
        writer = next(child for child in service.supervisor.children if child.spec.name == "pack_writer")
        assert writer.kill()
        after = service.store.put_small(b"after", None)
        while not after.taken:  # noqa: ASYNC110 - by the writer that was started in its place
            await asyncio.sleep(0.005)
        assert not after.done
        disk.go.set()

        assert not (await after.wait()).existed
        assert all(isinstance(put.result, PenstockError) for put in many)
        for number in range(len(many)):
            assert (await service.api.put(Put(b"many %d" % number))).existed
