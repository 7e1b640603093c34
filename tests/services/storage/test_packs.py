"""Packs: small objects lie together, equal ones once; what is damaged, cut or gone is never served and never silent."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts.storage import Get, Put
from penstock.kernel.errors import DownstreamUnavailable, Integrity, NotReady
from penstock.kernel.sync_pace import FAST_IN_A_ROW, SLOW_S, SyncPace
from penstock.services.storage import pack_format, pack_writer
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.engines.disk import RealStorageDisk
from penstock.services.storage.engines.engine import ObjectEngine
from penstock.services.storage.engines.objects import ObjectFiles
from penstock.services.storage.engines.packs import MARK, StoreDamaged, read_packs
from penstock.services.storage.engines.ram import RamStorageDisk
from penstock.services.storage.index import LOOSE, ObjectIndex, PackPlace
from penstock.services.storage.pack_format import HEADER_BYTES, PackFormat, PackMark
from penstock.testing.simdisk import SimDisk
from penstock.wire.ids import address_of
from tests.services.storage.sim import SimFiles, engine_on
from tests.services.storage.worlds import make_loose, running

DATA = [b"object %d " % number * (40 + 150 * number) for number in range(6)]
PACK = "packs/00000001"
GROUPS = (DATA[:2], DATA[2:3], DATA[3:])


def named(data: bytes) -> tuple[bytes, bytes]:
    return blake3(data).digest(), data


def fill(where: Path | RamStorageDisk, *, seal: bool = False, clean: bool = True) -> None:
    """Store the objects in three groups; with `seal` in a pack that is followed by another."""
    engine = reopened(where)
    for group in GROUPS:
        engine.commit([named(data) for data in group])
    if seal:
        engine.packs._next_pack()
        engine.commit([named(b"in the second pack")])
    if clean:
        engine.close()


def reopened(where: Path | RamStorageDisk) -> ObjectEngine:
    disk = RealStorageDisk(where) if isinstance(where, Path) else where
    engine = engine_on(disk)
    engine.open()
    return engine


# --- what is stored


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_objects_are_found_after_a_restart(tmp_path: Path, seal: bool, clean: bool) -> None:
    fill(tmp_path, seal=seal, clean=clean)
    engine = ObjectEngine(RealStorageDisk(tmp_path), packed_max=1000)
    at_start = engine.open()

    assert [engine.find(address_of(data)).data for data in DATA] == DATA
    assert [engine.find_now(address_of(data)).data for data in DATA] == DATA
    assert at_start.objects == len(DATA) + seal
    assert at_start.size == sum(map(len, DATA)) + len(b"in the second pack") * seal


def test_pack_that_is_full_is_sealed_and_another_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_format, "PACK_BYTES_MAX", 3000)
    fill(tmp_path)

    assert len(list((tmp_path / "packs").iterdir())) == 2
    assert [scan.sealed for scan in read_packs(RealStorageDisk(tmp_path))[1]] == [True, False]
    assert [reopened(tmp_path).find(address_of(data)).data for data in DATA] == DATA


async def test_equal_objects_at_the_same_moment_are_stored_once(tmp_path: Path) -> None:
    async with running(StorageOptions(directory=tmp_path)) as service:
        puts = [service.store.put_small(DATA[number % 3], None) for number in range(30)]
        stored = [await put.wait() for put in puts]

        assert sum(not each.existed for each in stored) == 3
        assert service.store.ledger.objects == 3
    scans = read_packs(RealStorageDisk(tmp_path))[1]
    assert [len(scan.entries) for scan in scans] == [3]


async def test_store_of_earlier_versions_is_read_and_goes_on(tmp_path: Path) -> None:
    for data in DATA[:3]:
        make_loose(tmp_path, data)
    for _ in range(2):
        async with running(StorageOptions(directory=tmp_path)) as service:
            assert [(await service.api.get(Get(address_of(data)))).data for data in DATA[:3]] == DATA[:3]
            assert [(await service.api.put(Put(data))).existed for data in DATA[:3]] == [True] * 3
            await service.api.put(Put(DATA[4]))
            assert (service.store.ledger.objects, service.store.ledger.used_bytes) == (
                4, sum(map(len, (*DATA[:3], DATA[4]))),
            )  # fmt: skip
    assert sum(len(scan.entries) for scan in read_packs(RealStorageDisk(tmp_path))[1]) == 1


async def test_full_index_gives_further_objects_files_of_their_own(tmp_path: Path) -> None:
    for _ in range(2):
        async with running(StorageOptions(directory=tmp_path, packed_max=2)) as service:
            for data in DATA:
                await service.api.put(Put(data))
            assert [(await service.api.put(Put(data))).existed for data in DATA] == [True] * 6
            assert [(await service.api.get(Get(address_of(data)))).data for data in DATA] == DATA
            assert service.store.ledger.objects == len(DATA)
    files = ObjectFiles(RealStorageDisk(tmp_path))
    assert sum(files.exists(address_of(data)) for data in DATA) == 4


def test_index_finds_what_was_put_and_nothing_else() -> None:
    dice, index = random.Random(2), ObjectIndex(5000)
    places = {
        dice.randbytes(32): PackPlace(dice.randrange(1, 1 << 20), dice.randrange(1 << 27), dice.randrange(65_537))
        for _ in range(4000)
    }
    for digest, place in places.items():
        assert index.put(digest, LOOSE) is None
        assert index.put(digest, place) == LOOSE

    assert all(index.find(digest) == place for digest, place in places.items())
    assert not any(index.find(dice.randbytes(32)) for _ in range(1000))
    assert index.count == 4000


def test_index_is_not_misled_by_bytes_that_lie_across_two_entries() -> None:
    index = ObjectIndex(10)
    for number in (1, 2):
        index.put(bytes(21) + bytes([number]) * 11, PackPlace(number, 0, 0))
    # What is asked for begins in the middle of the first entry's place and ends in the second entry's digest.
    across = bytes(2) + (1 << 44).to_bytes(8, "big")[3:] + bytes(15)

    assert index.find(across + bytes(10)) is None
    assert index.find(bytes(21) + b"\2" * 11) == PackPlace(2, 0, 0)


@given(st.lists(st.booleans(), max_size=200))
def test_loop_is_used_only_after_fast_syncs_in_a_row(syncs: list[bool]) -> None:
    pace = SyncPace()
    for number, fast in enumerate(syncs, 1):
        pace.note(SLOW_S / 2 if fast else SLOW_S * 2)
        last = syncs[max(0, number - FAST_IN_A_ROW) : number]

        assert pace.fast == (len(last) == FAST_IN_A_ROW and all(last))


async def test_few_objects_are_committed_on_the_loop_once_syncs_are_known_to_be_fast() -> None:
    async with running(StorageOptions()) as service:
        pool, before = service.store._packing, 0
        for number in range(FAST_IN_A_ROW + 10):
            before += number < FAST_IN_A_ROW and service.pack_writer.pace.fast
            await service.api.put(Put(b"%d" % number))
        assert (before, service.pack_writer.pace.fast) == (0, True)

        await pool.close()
        await service.api.put(Put(b"few"))
        assert pool._executor is None  # the loop did it
        many = [b"many %d" % number for number in range(pack_writer.LOOP_OBJECTS_MAX + 1)]
        for put in [service.store.put_small(data, None) for data in many]:
            await put.wait()
        assert pool._executor is not None


# --- what is damaged


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def entry_of(directory: Path, data: bytes) -> pack_format.PackEntry:
    entries = [entry for scan in read_packs(RealStorageDisk(directory))[1] for entry in scan.entries]
    return next(entry for entry in entries if entry.digest == blake3(data).digest())


def in_memory(*, seal: bool, clean: bool) -> RamStorageDisk:
    """Fill a disk that can be copied: damaging and opening it a thousand times is then cheap."""
    disk = RamStorageDisk()
    fill(disk, seal=seal, clean=clean)
    return disk


def damaged_copy(disk: RamStorageDisk, path: str, content: bytes) -> RamStorageDisk:
    copied = copy.deepcopy(disk)
    file = copied.open(path)
    file.truncate(0)
    file.write(0, content)
    return copied


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("seal", [False, True])
def test_every_flipped_bit_is_harmless_or_422_or_keeps_the_store_shut(seal: bool, clean: bool) -> None:
    disk, dice, shut, refused = in_memory(seal=seal, clean=clean), random.Random(4), 0, 0
    end = read_packs(disk)[1][0].end
    for at in sorted({*range(200), *(dice.randrange(end) for _ in range(300))}):
        whole = bytearray(disk.read(PACK, 0, 1 << 30))
        whole[at] ^= 1 << dice.randrange(8)
        try:
            engine = reopened(damaged_copy(disk, PACK, whole))
        except StoreDamaged:
            shut += 1
            continue
        for data in DATA:
            try:
                assert engine.find(address_of(data)).data == data
            except Integrity:
                refused += 1
    assert refused > 100
    assert shut > 50


def starts_in(disk: RamStorageDisk) -> list[int]:
    """Say where the three groups begin, and where the last one ends."""
    whole, at = disk.read(PACK, 0, 1 << 30), HEADER_BYTES
    form, starts = PackFormat(1, pack_format.read_header(1, whole)), [at]
    while (group := form.read(at, whole[at:])) is not None and group.kind == pack_format.GROUP:
        at = group.end
        starts.append(at)
    assert len(starts) == 4
    return starts


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("seal", [False, True])
def test_pack_cut_anywhere_keeps_the_store_shut(seal: bool, clean: bool) -> None:
    disk = in_memory(seal=seal, clean=clean)
    end = read_packs(disk)[1][0].end
    whole, starts = disk.read(PACK, 0, end), starts_in(disk)
    for cut in (0, 5, *starts[:3], *(each + 1 for each in starts[:3]), starts[3] - 1, end - 1):
        with pytest.raises(StoreDamaged):
            reopened(damaged_copy(disk, PACK, whole[:cut]))
    assert [reopened(disk).find(address_of(data)).data for data in DATA] == DATA


def with_old_mark() -> RamStorageDisk:
    """Fill a disk whose mark says too little, as after a power loss."""
    disk = in_memory(seal=False, clean=False)
    disk.open(MARK).write(0, pack_format.write_mark(PackMark(1, HEADER_BYTES)))
    return disk


def test_damaged_head_keeps_the_store_shut_also_when_the_mark_is_old() -> None:
    disk = with_old_mark()
    whole, starts = disk.read(PACK, 0, 1 << 30), starts_in(disk)
    names = starts[2] + pack_format.HEAD_BYTES
    tables = [*range(starts[0], starts[0] + 128), *range(starts[1], starts[1] + 88), *range(names, names + 3 * 40 + 16)]
    for at in tables:
        with pytest.raises(StoreDamaged):
            reopened(damaged_copy(disk, PACK, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]))


@pytest.mark.parametrize("sector", [0, 1, 2, -1])
def test_last_group_that_was_not_written_whole_is_cut_off(sector: int) -> None:
    disk = with_old_mark()
    whole, (*_, start, end) = bytearray(disk.read(PACK, 0, 1 << 30)), starts_in(disk)
    cuts = [start, *range((start // 512 + 1) * 512, end, 512), end]
    lost = slice(cuts[sector], cuts[sector + 1]) if sector >= 0 else slice(cuts[-2], cuts[-1])
    whole[lost] = bytes(lost.stop - lost.start)
    engine = ObjectEngine(damaged_copy(disk, PACK, whole), packed_max=1000)
    at_start = engine.open()

    assert at_start.objects == 3
    assert engine.torn_bytes >= end - start
    assert engine.commit([named(data) for data in GROUPS[2]]) == ["new"] * 3
    assert [engine.find(address_of(data)).data for data in DATA] == DATA


@pytest.mark.parametrize("gone", ["packs/00000001", "packs/00000002", "packs", "packs.mark"])
def test_file_that_is_gone_keeps_the_store_shut(tmp_path: Path, gone: str) -> None:
    fill(tmp_path, seal=True)
    path = tmp_path / gone
    path.rename(tmp_path / "elsewhere")

    with pytest.raises(StoreDamaged):
        reopened(tmp_path)
    if gone == "packs":
        path.rmdir()  # the attempt made an empty one
    (tmp_path / "elsewhere").rename(path)
    assert [reopened(tmp_path).find(address_of(data)).data for data in DATA] == DATA


def test_pack_in_the_place_of_another_keeps_the_store_shut(tmp_path: Path) -> None:
    fill(tmp_path, seal=True)
    pack = tmp_path / PACK
    (tmp_path / "packs" / "00000002").write_bytes(pack.read_bytes())

    with pytest.raises(StoreDamaged):
        reopened(tmp_path)


def test_damaged_seal_costs_nothing(tmp_path: Path) -> None:
    fill(tmp_path, seal=True)
    pack = tmp_path / PACK
    flip(pack, len(pack.read_bytes()) - 60)

    assert [reopened(tmp_path).find(address_of(data)).data for data in DATA] == DATA


def test_bytes_of_an_object_are_never_taken_for_a_group() -> None:
    other = PackFormat(1, bytes(32))
    fake, _ = other.group(1, 5000, [named(b"never stored")])
    sim = SimDisk()
    engine = engine_on(SimFiles(sim))
    engine.open()
    engine.commit([named(fake * 40)])
    sim.flip_bit("packs/00000001", (HEADER_BYTES + 3) * 8)
    _, scans, faults = read_packs(SimFiles(sim))

    assert [len(scan.entries) for scan in scans] == [0]
    assert len(faults) == 1


async def test_damaged_object_is_422_and_the_same_bytes_heal_it(tmp_path: Path) -> None:
    fill(tmp_path)
    flip(tmp_path / "packs" / "00000001", entry_of(tmp_path, DATA[1]).offset + 7)
    async with running(StorageOptions(directory=tmp_path)) as service:
        with pytest.raises(Integrity):
            await service.api.get(Get(address_of(DATA[1])))
        assert (await service.api.get(Get(address_of(DATA[0])))).data == DATA[0]
        healed = await service.api.put(Put(DATA[1]))
        assert not healed.existed
        assert service.store.outcomes["healed"].value == 1
        assert (await service.api.get(Get(address_of(DATA[1])))).data == DATA[1]
        assert service.store.ledger.objects == len(DATA)

    async with running(StorageOptions(directory=tmp_path)) as service:
        assert (await service.api.get(Get(address_of(DATA[1])))).data == DATA[1]
        assert (service.store.ledger.objects, service.store.ledger.used_bytes) == (len(DATA), sum(map(len, DATA)))


async def test_damaged_packs_leave_the_service_up_not_ready_and_saying_why(tmp_path: Path) -> None:
    fill(tmp_path, seal=True)
    (tmp_path / "packs" / "00000001").unlink()
    async with running(StorageOptions(directory=tmp_path)) as service:
        verdict = service.store.inventory.health.verdict()
        with pytest.raises(NotReady) as refused:
            await service.api.put(Put(b"new"))

        assert (verdict.ready, "objects" in verdict.missing) == (False, True)
        assert "pack 1 is missing" in refused.value.detail
        assert "penstock storage check" in refused.value.detail


async def test_pack_that_is_removed_under_a_running_store_fails_puts(tmp_path: Path) -> None:
    async with running(StorageOptions(directory=tmp_path)) as service:
        await service.api.put(Put(DATA[0]))
        (tmp_path / "packs" / "00000001").unlink()
        with pytest.raises(DownstreamUnavailable):
            await service.api.put(Put(DATA[1]))

        assert service.store.ledger.objects == 1


async def test_memory_keeps_packs_too_and_forgets_them() -> None:
    disk = RamStorageDisk()
    async with running(StorageOptions(), disk=disk) as service:
        for data in DATA:
            await service.api.put(Put(data))
        assert [(await service.api.get(Get(address_of(data)))).data for data in DATA] == DATA
