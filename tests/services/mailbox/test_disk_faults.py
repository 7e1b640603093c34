"""Nothing is lost in silence, whatever the disk does."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from penstock.contracts.mailbox import Ack, GetDlq, Recv, Send
from penstock.kernel.errors import DownstreamUnavailable, NotReady, OverLimit, PenstockError
from penstock.services.mailbox.engines.engine import Corrupt, EngineFailed
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.engines.wal import damaged_frame
from tests.services.mailbox.faulty_vfs import FaultyVfs
from tests.services.mailbox.worlds import mailbox_options, make_engine, running


async def drain(mailbox, topic: str = "orders") -> list[bytes]:
    seen = []
    while got := (await mailbox.api.recv(Recv(topic, 50, wait_ms=500))).messages:
        for message in got:
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
    assert damaged_frame(bytes(data)) is None

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
        assert mailbox.room.integrity["row"].value > 0


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


async def test_full_disk_refuses_sends_with_507_and_still_takes_settlements(tmp_path: Path) -> None:
    vfs = FaultyVfs("full_disk")
    engine = SqliteEngine(tmp_path, vfs=vfs.name)

    def give_reserve() -> None:
        vfs.faults.room_bytes = 64 << 10

    engine.release_reserve = give_reserve
    async with running(engine, mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"kept"))
        (got,) = (await mailbox.api.recv(Recv("orders", visibility_ms=60_000))).messages
        vfs.faults.room_bytes = 4096
        with pytest.raises(OverLimit) as caught:
            await mailbox.api.send(Send("orders", bytes(100_000)))
        assert (caught.value.status, caught.value.facts["limit"]) == (507, "disk")
        assert (await mailbox.api.ack(Ack(got.msg_id, got.receipt))).ok
        vfs.faults.room_bytes = None
        await mailbox.api.send(Send("orders", b"room again"))

        assert await drain(mailbox) == [b"room again"]


async def test_check_finds_an_index_that_lost_an_entry_and_nothing_else(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(5):
            await mailbox.api.send(Send("orders", b"%d" % number))
        assert engine.check() == []
    db = apsw.Connection(str(tmp_path / "mailbox.db"))
    db.execute("PRAGMA writable_schema = ON")
    db.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'key IS NULL', 'key IS NULL AND seq <> 3') WHERE name = 'msg_plain'"
    )
    db.close()
    db = apsw.Connection(str(tmp_path / "mailbox.db"))
    db.execute("REINDEX")
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, ' AND seq <> 3', '') WHERE name = 'msg_plain'")
    db.close()

    assert engine.check() != []
