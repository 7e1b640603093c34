"""Both disks keep one contract; the simulated one loses what was not made durable, and nothing else."""

from __future__ import annotations

import errno
import random

import pytest

from penstock.testing.disk import Disk, RealDisk
from penstock.testing.leaks import Leaks
from penstock.testing.session import run
from penstock.testing.simdisk import SECTOR_BYTES, SimDisk


@pytest.fixture(params=["real", "simulated"])
def disk(request, tmp_path) -> Disk:
    return RealDisk(tmp_path) if request.param == "real" else SimDisk()


@pytest.fixture
def sim() -> SimDisk:
    return SimDisk()


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    data = file.read(0, file.size())
    file.close()
    return data


def keep(disk: Disk, path: str, data: bytes) -> None:
    """Write a file as one must: contents first, then the name."""
    file = disk.open(path)
    file.append(data)
    file.fsync()
    file.close()
    disk.fsync_dir(path.rpartition("/")[0])


def test_a_file_is_written_read_and_cut(disk) -> None:
    file = disk.open("log")
    assert file.append(b"hello") == 0
    assert file.append(b" world") == 5
    file.write(0, b"J")
    file.write(13, b"!")

    assert file.read(0, 100) == b"Jello world\0\0!"
    assert file.read(6, 5) == b"world"
    assert file.read(99, 5) == b""
    file.truncate(5)
    file.truncate(7)
    assert content(disk, "log") == b"Jello\0\0"
    file.fsync()
    file.close()
    file.close()


def test_names_are_listed_renamed_and_removed(disk) -> None:
    disk.mkdir("segments")
    disk.mkdir("segments")
    keep(disk, "segments/b", b"2")
    keep(disk, "segments/a", b"1")
    keep(disk, "manifest", b"m")

    assert disk.listdir() == ["manifest", "segments"]
    disk.rename("segments/b", "segments/a")
    assert disk.listdir("segments") == ["a"]
    assert content(disk, "segments/a") == b"2"
    disk.unlink("segments/a")
    disk.fsync_dir("segments")
    assert disk.listdir("segments") == []


def test_what_is_not_there_is_said_to_be_missing(disk) -> None:
    for act in (
        lambda: disk.unlink("gone"),
        lambda: disk.rename("gone", "new"),
        lambda: disk.open("nowhere/file"),
        lambda: disk.listdir("nowhere"),
    ):
        with pytest.raises(FileNotFoundError):
            act()


def test_an_open_file_follows_its_rename(disk) -> None:
    file = disk.open("new.tmp")
    disk.rename("new.tmp", "new")
    file.append(b"late")
    file.close()

    assert content(disk, "new") == b"late"


def test_power_loss_drops_what_was_not_synced(sim) -> None:
    keep(sim, "log", b"safe")
    file = sim.open("log")
    file.append(b" and lost")
    file.write(0, b"S")

    assert content(sim, "log") == b"Safe and lost"
    sim.power_loss()
    assert content(sim, "log") == b"safe"


def test_power_loss_drops_a_new_name_although_its_bytes_were_synced(sim) -> None:
    file = sim.open("new")
    file.append(b"data")
    file.fsync()
    sim.power_loss()

    assert sim.listdir() == []


def test_a_rename_without_fsync_of_the_directory_is_undone(sim) -> None:
    keep(sim, "current", b"old")
    keep(sim, "current.tmp", b"new")
    sim.rename("current.tmp", "current")
    sim.power_loss()

    assert content(sim, "current") == b"old"
    assert content(sim, "current.tmp") == b"new"


def test_a_rename_before_the_fsync_of_the_file_leaves_an_empty_file(sim) -> None:
    keep(sim, "current", b"old")
    file = sim.open("current.tmp")
    file.append(b"new")
    sim.rename("current.tmp", "current")
    sim.fsync_dir()
    sim.power_loss()

    assert content(sim, "current") == b""


def test_a_removal_and_a_directory_are_durable_only_after_fsync_dir(sim) -> None:
    keep(sim, "log", b"x")
    sim.unlink("log")
    sim.mkdir("sub")
    keep(sim, "sub/file", b"y")
    sim.power_loss()

    assert sim.listdir() == ["log"]
    sim.unlink("log")
    sim.mkdir("sub")
    sim.fsync_dir()
    sim.power_loss()
    assert sim.listdir() == ["sub"]


def test_a_torn_tail_keeps_the_first_unsynced_bytes_once(sim) -> None:
    keep(sim, "log", b"head|")
    file = sim.open("log")
    file.append(b"record one|")
    file.append(b"record two|")
    sim.torn_tail("log", 14)
    sim.power_loss()

    assert content(sim, "log") == b"head|record one|rec"
    sim.open("log").append(b"gone")
    sim.power_loss()
    assert content(sim, "log") == b"head|record one|rec"


def test_a_random_loss_keeps_whole_sectors_of_what_was_written(sim) -> None:
    rng = random.Random(7)
    kept_some = False
    for _ in range(20):
        keep(sim, "log", b"")
        file = sim.open("log")
        file.truncate(0)
        file.fsync()
        file.write(100, b"x" * SECTOR_BYTES * 4)
        sim.power_loss(rng)
        data = content(sim, "log").ljust(100 + SECTOR_BYTES * 4, b"\0")
        sectors = [data[start : start + SECTOR_BYTES][100 if start == 0 else 0 :] for start in range(0, 2048, 512)]
        assert all(set(sector) in ({0}, {120}) for sector in sectors)
        kept_some = kept_some or b"x" in data

    assert kept_some


def test_a_failed_fsync_loses_its_bytes_even_if_the_next_one_succeeds(sim) -> None:
    keep(sim, "log", b"safe")
    file = sim.open("log")
    file.append(b"lost")
    sim.fail_fsync("log")
    with pytest.raises(OSError, match="EIO") as caught:
        file.fsync()
    file.fsync()

    assert caught.value.errno == errno.EIO
    assert content(sim, "log") == b"safelost"
    sim.power_loss()
    assert content(sim, "log") == b"safe"


def test_any_fsync_can_be_made_to_fail_a_number_of_times(sim) -> None:
    sim.fail_fsync(times=2)
    file = sim.open("log")
    for act in (file.fsync, sim.fsync_dir):
        with pytest.raises(OSError, match="EIO"):
            act()
    file.fsync()
    sim.fsync_dir()
    sim.power_loss()

    assert sim.listdir() == ["log"]


def test_a_full_disk_takes_a_part_and_refuses(sim) -> None:
    sim.disk_full(room_bytes=3)
    file = sim.open("log")
    with pytest.raises(OSError, match="ENOSPC") as caught:
        file.append(b"abcdef")

    assert caught.value.errno == errno.ENOSPC
    assert file.read(0, 9) == b"abc"
    sim.disk_full(None)
    file.append(b"def")
    assert file.read(0, 9) == b"abcdef"


def test_a_flipped_bit_stays_flipped(sim) -> None:
    keep(sim, "log", b"\x00\x00")
    sim.flip_bit("log", 9)

    assert content(sim, "log") == b"\x00\x02"
    sim.power_loss()
    assert content(sim, "log") == b"\x00\x02"


def test_a_file_opened_before_the_power_loss_is_dead(sim) -> None:
    keep(sim, "log", b"x")
    file = sim.open("log")
    sim.power_loss()

    for act in (file.size, file.fsync, lambda: file.append(b"y"), lambda: file.read(0, 1)):
        with pytest.raises(OSError, match="EIO"):
            act()
    closed = sim.open("log")
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        closed.size()


def test_a_file_left_open_fails_the_test() -> None:
    async def scenario() -> None:
        SimDisk().open("log")

    with pytest.raises(Leaks, match="unclosed resource: file log"):
        run(scenario())


def save_unsafely(disk: Disk, data: bytes) -> None:
    """Replace a file; the planted bug: nothing is synced before the rename."""
    file = disk.open("state.tmp")
    file.truncate(0)
    file.append(data)
    file.close()
    disk.rename("state.tmp", "state")
    disk.fsync_dir()


def save_safely(disk: Disk, data: bytes) -> None:
    file = disk.open("state.tmp")
    file.truncate(0)
    file.append(data)
    file.fsync()
    file.close()
    disk.rename("state.tmp", "state")
    disk.fsync_dir()


@pytest.mark.parametrize(("save", "survives"), [(save_safely, True), (save_unsafely, False)])
def test_the_disk_tells_a_safe_save_from_an_unsafe_one(sim, save, survives) -> None:
    save(sim, b"version one")
    save(sim, b"version two")
    sim.power_loss()

    assert (content(sim, "state") == b"version two") is survives
