"""Nothing is lost in silence, whatever the disk does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from penstock.contracts.mailbox import Ack, GetDlq, GetTopics, Purge, Recv, Send, SendBatch
from penstock.kernel.errors import DownstreamUnavailable, NotReady, OverLimit, PenstockError
from penstock.services.mailbox.engines.engine import Corrupt, EngineFailed
from penstock.services.mailbox.engines.files import RECORD, LogRecord
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.engines.wal import scan_log
from penstock.services.mailbox.service import MailboxService
from tests.services.mailbox.faulty_vfs import FaultyVfs, VfsRoom
from tests.services.mailbox.worlds import mailbox_options, make_engine, running


async def left(mailbox, topic: str) -> int:
    """Count what there is to deliver, now or later."""
    topics = (await mailbox.api.topics(GetTopics())).topics
    return sum(each.ready + each.inflight + each.delayed for each in topics if each.topic == topic)


async def drain(mailbox, topic: str = "orders") -> list[bytes]:
    """Take and settle until nothing is left to deliver; an empty answer may only mean that the disk took its time."""
    seen = []
    while await left(mailbox, topic):
        for message in (await mailbox.api.recv(Recv(topic, 50, wait_ms=500))).messages:
            seen.append(message.payload)
            await mailbox.api.ack(Ack(message.msg_id, message.receipt))
    return seen


async def crashed_copy(tmp_path: Path, sends: int) -> Path:
    """Send one commit after the other, and copy the files as a kill would leave them."""
    engine = SqliteEngine(tmp_path / "live", wal_bytes=1 << 20)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(sends):
            await mailbox.api.send(Send("orders", b"%d" % number))
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    return tmp_path / "copy"


async def test_crash_keeps_every_acknowledged_message(tmp_path: Path) -> None:
    copy = await crashed_copy(tmp_path, 30)
    async with running(SqliteEngine(copy, wal_bytes=1 << 20), mailbox_options({})) as mailbox:
        assert await drain(mailbox) == [b"%d" % number for number in range(30)]


async def test_flipped_bit_in_the_middle_of_the_wal_is_refused_and_the_files_stay(tmp_path: Path) -> None:
    copy = await crashed_copy(tmp_path, 30)
    wal = copy / "mailbox.db-wal"
    data = bytearray(wal.read_bytes())
    used = max(place for place in range(0, len(data), 4096) if any(data[place : place + 4096]))
    data[used // 2] ^= 4
    wal.write_bytes(data)
    engine = SqliteEngine(copy, wal_bytes=1 << 20)

    with pytest.raises(Corrupt) as caught:
        engine.open(10)
    assert caught.value.facts["where"] == "wal"
    assert wal.read_bytes() == data


async def test_torn_tail_is_no_damage(tmp_path: Path) -> None:
    copy = await crashed_copy(tmp_path, 30)
    wal = copy / "mailbox.db-wal"
    data = bytearray(wal.read_bytes())
    used = 4096 * max(place for place in range(len(data) // 4096) if any(data[place * 4096 : place * 4096 + 4096]))
    data[used + 8 :] = bytes(len(data) - used - 8)
    wal.write_bytes(data)
    # A commit that was cut off was never put on record.
    found = scan_log(bytes(data))
    record = LogRecord.unpack((copy / RECORD).read_bytes())
    (copy / RECORD).write_bytes(replace(record, frames=found.frames).pack())
    assert found.damaged is None

    async with running(SqliteEngine(copy, wal_bytes=1 << 20), mailbox_options({})) as mailbox:
        assert (await drain(mailbox))[:28] == [b"%d" % number for number in range(28)]


async def test_flipped_payload_is_dead_lettered_and_harms_no_neighbour(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(5):
            await mailbox.api.send(Send("orders", b"payload-%d" % number))
    db = apsw.Connection(str(tmp_path / "mailbox.db"))
    db.execute("UPDATE msg SET payload = CAST('payload-X' AS BLOB) WHERE seq = 3")
    db.close()
    async with running(engine, mailbox_options({"max_attempts": 2})) as mailbox:
        seen = await drain(mailbox)
        (dead,) = (await mailbox.api.dlq(GetDlq("orders"))).entries

        assert seen == [b"payload-%d" % number for number in (0, 1, 3, 4)]
        assert (dead.reason, dead.attempts) == ("integrity", 2)
        assert mailbox.state.integrity["row"].value > 0


async def test_failing_fsync_fails_the_send_and_the_engine_comes_back(tmp_path: Path) -> None:
    vfs = FaultyVfs("failing_fsync")
    engine = SqliteEngine(tmp_path, vfs=vfs.name)
    async with running(engine, mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"before"))
        vfs.faults.failing_syncs = 1
        with pytest.raises((EngineFailed, DownstreamUnavailable)) as caught:
            await mailbox.api.send(Send("orders", b"doubtful", idem_key="d"))
        assert (caught.value.status, caught.value.facts["outcome"]) == (503, "unknown")
        with pytest.raises((NotReady, PenstockError)):
            await mailbox.api.send(Send("orders", b"too early"))
        await mailbox.until_ready()
        await mailbox.api.send(Send("orders", b"doubtful", idem_key="d"))

        assert sorted(await drain(mailbox)) == [b"before", b"doubtful"]


async def fill_drain_and_recover(engine: SqliteEngine, give_room: Callable[[], None]) -> None:
    engine.monotonic = asyncio.get_running_loop().time
    async with running(engine, mailbox_options({})) as mailbox:
        stored, refused = [], []
        while len(refused) < 100:
            name = b"%05d" % len(stored)
            try:
                await mailbox.api.send(Send("orders", name + bytes(8000)))
                stored.append(name)
            except OverLimit as full:
                refused.append((full.status, full.facts["limit"]))
        assert set(refused) == {(507, "disk")}
        got = (await mailbox.api.recv(Recv("orders", len(stored) // 2, visibility_ms=60_000))).messages
        for message in got:
            assert (await mailbox.api.ack(Ack(message.msg_id, message.receipt))).ok
        assert mailbox.state.ready
        give_room()
        for _ in range(200):
            await asyncio.sleep(0.05)
            if not engine.full:
                break
        await mailbox.api.send(Send("orders", b"again"))
        rest = await drain(mailbox)

        assert [m.payload[:5] for m in got] + [payload[:5] for payload in rest] == [*stored, b"again"]


async def test_full_disk_refuses_sends_with_507_serves_its_consumers_and_recovers(tmp_path: Path) -> None:
    vfs = FaultyVfs("full_disk")
    vfs.faults.room_bytes = 4 << 20
    room = VfsRoom(vfs.faults, 1 << 20)
    engine = SqliteEngine(tmp_path, vfs=vfs.name, reserve=room, wal_bytes=1 << 20)

    await fill_drain_and_recover(engine, lambda: setattr(vfs.faults, "room_bytes", None))
    assert room.held


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk], check=False).returncode
    ):
        pytest.skip("a small file system can only be mounted by root")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.real_loop
async def test_really_full_disk_serves_its_consumers_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(5 << 20))
    await fill_drain_and_recover(SqliteEngine(small_disk / "mailbox", wal_bytes=1 << 20), ballast.unlink)

    assert (small_disk / "mailbox" / "reserve").stat().st_size == 1 << 20


@pytest.mark.real_loop
async def test_mailbox_starts_on_a_full_disk_and_gives_out_what_it_has(small_disk: Path) -> None:
    engine = SqliteEngine(small_disk / "mailbox", wal_bytes=1 << 20)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(50):
            await mailbox.api.send(Send("orders", b"%d" % number))
    with (small_disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    async with running(engine, mailbox_options({})) as mailbox:
        assert await drain(mailbox) == [b"%d" % number for number in range(50)]


async def test_index_that_lost_an_entry_is_found_and_made_anew(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(5):
            await mailbox.api.send(Send("orders", b"%d" % number))
        assert engine.check() == []
    db = apsw.Connection(str(tmp_path / "mailbox.db"))
    db.execute("PRAGMA writable_schema = ON")
    db.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'key IS NULL', 'key IS NULL AND seq <> 3') "
        "WHERE name = 'msg_plain'"
    )
    db.close()
    db = apsw.Connection(str(tmp_path / "mailbox.db"))
    db.execute("REINDEX")
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, ' AND seq <> 3', '') WHERE name = 'msg_plain'")
    db.close()
    assert engine.check() != []
    async with running(engine, mailbox_options({})) as mailbox:
        await asyncio.sleep(2)
        assert mailbox.state.integrity["file"].value > 0
        assert mailbox.inventory.health.verdict().ready

        assert await drain(mailbox) == [b"%d" % number for number in range(5)]


async def test_page_that_cannot_be_read_shuts_the_gate_and_is_named_by_its_messages(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(100):
            await mailbox.api.send(Send("orders", b"payload %d " % number + bytes(400)))
        await mailbox.api.send(Send("other", b"x"))
    file = tmp_path / "mailbox.db"
    data = bytearray(file.read_bytes())
    page = data.index(b"payload 50 ") // 4096 * 4096
    data[page : page + 8] = b"\xff" * 8
    file.write_bytes(data)
    async with running(engine, mailbox_options({})) as mailbox:
        await asyncio.sleep(2)
        gate = mailbox.inventory.health.gate("storage")

        assert not mailbox.inventory.health.verdict().ready
        first, last = map(int, re.search(r"messages (\d+) to (\d+) cannot be read", gate.why).groups())
        assert first <= 51 <= last
        assert last - first < 40
        assert [m.payload for m in (await mailbox.api.recv(Recv("other"))).messages] == [b"x"]


async def test_file_that_is_nearly_empty_gives_its_room_back(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path, wal_bytes=1 << 20)
    async with running(engine, mailbox_options({})) as mailbox:
        for _ in range(8):
            await mailbox.api.send_batch(SendBatch(tuple(Send("orders", bytes(500_000)) for _ in range(10))))
        await mailbox.api.send(Send("kept", b"this one"))
        assert (await mailbox.api.purge(Purge("orders"))).purged == 80
        engine.idle()

        assert (tmp_path / "mailbox.db").stat().st_size < 1 << 20
        assert [m.payload for m in (await mailbox.api.recv(Recv("kept"))).messages] == [b"this one"]


async def fill(mailbox: MailboxService) -> int:
    for number in range(5000):
        try:
            await mailbox.api.send(Send("orders", bytes(8000)))
        except OverLimit:
            return number
    raise AssertionError("the disk was never full")


@pytest.mark.real_loop
async def test_disk_that_was_full_once_takes_messages_again_after_its_queue_was_drained(small_disk: Path) -> None:
    engine = SqliteEngine(small_disk / "mailbox", wal_bytes=1 << 20)
    async with running(engine, mailbox_options({})) as mailbox:
        stored = await fill(mailbox)
        while got := (await mailbox.api.recv(Recv("orders", 200, visibility_ms=60_000))).messages:
            for message in got:
                assert (await mailbox.api.ack(Ack(message.msg_id, message.receipt))).ok
        with pytest.raises(OverLimit):
            await mailbox.api.send(Send("orders", b"at once"))
        engine.monotonic = lambda: time.monotonic() + 2.5

        assert stored > 500
        assert (await mailbox.api.send(Send("orders", b"two seconds later"))).msg_id
