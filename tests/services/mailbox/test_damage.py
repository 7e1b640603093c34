"""One flipped bit, anywhere.

It is found and said, the service does not pretend, and a repair saves all but what was hit.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.contracts.mailbox import Ack, GetDlq, GetTopic, GetTopics, Nack, Peek, Purge, Recv, Reprocess, Send
from penstock.kernel.errors import NotReady, PenstockError
from penstock.services.mailbox.engines.engine import Corrupt, EngineFailed
from penstock.services.mailbox.engines.repair import as_ranges, look, repair
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.testing.loop import VirtualLoop
from tests.services.mailbox.worlds import mailbox_options, running

SENT = 120
WAL_BYTES = 4 << 20


async def send(mailbox, numbers: range) -> None:
    for number in numbers:
        key = f"k{number % 7}" if number % 3 == 0 else None
        payload = b"%03d" % number + b"." * (9000 if number % 10 == 0 else number)
        await mailbox.api.send(Send("orders", payload, key=key, idem_key=f"i{number}"))


async def live(directory: Path) -> None:
    """Live twice: messages of every size, keyed or not, acked, given back, dead, purged; killed in the second life."""
    options = mailbox_options({"max_attempts": 1})
    async with running(SqliteEngine(directory / "live", wal_bytes=WAL_BYTES), options) as mailbox:
        for number in range(100):
            await mailbox.api.send(Send("old", b"old %d" % number + bytes(500)))
        await send(mailbox, range(SENT // 2))
    async with running(SqliteEngine(directory / "live", wal_bytes=WAL_BYTES), options) as mailbox:
        await send(mailbox, range(SENT // 2, SENT))
        for _ in range(10):
            (message,) = (await mailbox.api.recv(Recv("orders"))).messages
            await mailbox.api.ack(Ack(message.msg_id, message.receipt))
        for _ in range(5):
            (message,) = (await mailbox.api.recv(Recv("orders"))).messages
            await mailbox.api.nack(Nack(message.msg_id, message.receipt, reason="no"))
        await mailbox.api.purge(Purge("old"))
        shutil.copytree(directory / "live", directory / "copy")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files as a kill leaves them: some rows in the file, some in the log."""
    directory = tmp_path_factory.mktemp("crashed")
    loop = VirtualLoop()
    loop.run_until_complete(live(directory))
    loop.close()
    return directory / "copy"


def contents(directory: Path) -> tuple[set[int], set[int], set[int], SqliteEngine]:
    """Open and read everything: the numbers of the living, the dead, and those that were found damaged."""
    engine = SqliteEngine(directory, wal_bytes=128 << 10)
    opened = engine.open(100)
    living = [row.seq for topic in opened.topics for row, _ in engine.reads.living(topic.id, 0, 10_000, 10_000)]
    good = set(engine.reads.rows(living))
    dead = {seq for (seq,) in engine.reads._ask("SELECT seq FROM dead")}
    return good, dead, set(engine.reads.damaged), engine


def flipped(source: Path, target: Path, name: str, bit: int) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    data = bytearray((target / name).read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    (target / name).write_bytes(data)
    return target


def used_bytes(path: Path) -> int:
    data = path.read_bytes()
    return max(place for place in range(0, len(data), 512) if any(data[place : place + 512])) + 512


@pytest.mark.parametrize("name", ["mailbox.db", "mailbox.db-wal"])
def test_flipped_bit_anywhere_never_means_fewer_messages_in_silence(crashed: Path, tmp_path: Path, name: str) -> None:
    whole, dead, damaged, engine = contents(shutil.copytree(crashed, tmp_path / "whole"))
    engine.close()
    assert (len(whole), len(dead), damaged) == (SENT - 15, 5, set())
    rng, size = random.Random(name), used_bytes(crashed / name)
    outcomes = dict.fromkeys(("refused", "told", "harmless", "torn"), 0)
    for _ in range(100):
        bit = rng.randrange(size * 8)
        directory = flipped(crashed, tmp_path / "flipped", name, bit)
        try:
            good, buried, found, engine = contents(directory)
        except (Corrupt, EngineFailed):
            outcomes["refused"] += 1
            continue
        told = bool(found) or bool(engine.check())
        engine.close()
        if (good | buried) >= whole | dead:
            outcomes["harmless"] += 1
        elif told:
            outcomes["told"] += 1
        else:
            # The last commit of the log cannot be told from a torn one.
            assert name.endswith("-wal"), bit
            assert bit // 8 > size - 64_000, bit
            outcomes["torn"] += 1

    assert outcomes["refused"] + outcomes["told"] > 10, outcomes


@pytest.mark.parametrize("name", ["mailbox.db", "mailbox.db-wal"])
def test_repair_saves_all_but_what_was_hit_and_names_what_is_lost(crashed: Path, tmp_path: Path, name: str) -> None:
    whole, dead, _, engine = contents(shutil.copytree(crashed, tmp_path / "whole"))
    engine.close()
    rng, size = random.Random(name), used_bytes(crashed / name)
    for _ in range(30):
        directory = flipped(crashed, tmp_path / "flipped", name, rng.randrange(size * 8))
        before = (directory / name).read_bytes()
        report = repair(directory)
        good, buried, damaged, engine = contents(directory)
        faults = engine.check()
        engine.close()
        lost = {seq for first, last in report.lost for seq in range(first, last + 1)}

        assert (damaged, faults) == (set(), [])
        assert good <= whole, "an acked message came back"
        assert (whole | dead) - (good | buried) <= lost, "a message is missing and nobody says so"
        assert len(whole - good) <= 12, "a flipped bit cost more than its page"
        assert (Path(report.kept_in) / name).read_bytes() == before
        shutil.rmtree(report.kept_in)


def test_repair_takes_a_damaged_row_from_an_older_copy_of_its_page(crashed: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(crashed, tmp_path / "copy")
    wal = directory / "mailbox.db-wal"
    data = bytearray(wal.read_bytes())
    at = data.rindex(b"115......")
    assert data.count(b"115......") > 1
    data[at + 5] ^= 1
    wal.write_bytes(data)
    report = repair(directory)

    assert (len(report.damaged_frames), report.lost, report.messages) == (1, [], SENT - 15)


def test_repair_of_whole_files_changes_nothing(crashed: Path, tmp_path: Path) -> None:
    whole, dead, _, engine = contents(shutil.copytree(crashed, tmp_path / "whole"))
    engine.close()
    directory = shutil.copytree(crashed, tmp_path / "copy")
    assert look(directory) == []
    report = repair(directory)
    good, buried, _, engine = contents(directory)
    engine.close()

    assert (good, buried) == (whole, dead)
    assert (report.lost, report.unreadable, report.renamed, report.damaged_frames) == ([], 0, [], [])
    assert (report.messages, report.dead_letters) == (len(whole), len(dead))


def damage_middle(directory: Path) -> Path:
    """Flip a bit in the middle of the log."""
    wal = directory / "mailbox.db-wal"
    data = bytearray(wal.read_bytes())
    data[used_bytes(wal) // 3] ^= 4
    wal.write_bytes(data)
    return directory


async def test_damaged_log_leaves_the_service_up_not_ready_and_counted(crashed: Path, tmp_path: Path) -> None:
    directory = damage_middle(shutil.copytree(crashed, tmp_path / "copy"))
    before = (directory / "mailbox.db-wal").read_bytes()
    async with running(SqliteEngine(directory, wal_bytes=WAL_BYTES), mailbox_options({})) as mailbox:
        inventory = mailbox.inventory
        verdict = inventory.health.verdict()
        assert (verdict.ready, "engine" in verdict.missing, inventory.health.fatal) == (False, True, None)
        assert "write-ahead log" in inventory.health.gate("engine").why
        assert inventory.metrics.value("integrity_fail_total", reason="wal") == 1
        for call in (
            mailbox.api.send(Send("orders", b"x")),
            mailbox.api.recv(Recv("orders")),
            mailbox.api.topics(GetTopics()),
            mailbox.api.topic(GetTopic("orders")),
            mailbox.api.peek(Peek("orders")),
            mailbox.api.purge(Purge("orders")),
            mailbox.api.dlq(GetDlq()),
            mailbox.api.reprocess(Reprocess("orders", 1)),
        ):
            with pytest.raises(NotReady, match="write-ahead log"):
                await call
        await asyncio.sleep(100)
        assert not mailbox.state.ready

    assert (directory / "mailbox.db-wal").read_bytes() == before


async def test_after_a_repair_the_mailbox_serves_again(
    crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage_middle(shutil.copytree(crashed, tmp_path / "mailbox"))
    where = ["--data-dir", str(tmp_path), "--json"]
    assert main(["mailbox", "check", *where]) == 1
    assert "write-ahead log" in json.loads(capsys.readouterr().out)["faults"][0]
    assert main(["mailbox", "repair", *where]) == 0
    report = json.loads(capsys.readouterr().out)
    assert main(["mailbox", "check", *where]) == 0
    lost = sum(last - first + 1 for first, last in report["lost"])
    seen = 0
    async with running(SqliteEngine(tmp_path / "mailbox", wal_bytes=WAL_BYTES), mailbox_options({})) as mailbox:
        while got := (await mailbox.api.recv(Recv("orders", 50, wait_ms=6000))).messages:
            seen += len(got)
            for message in got:
                await mailbox.api.ack(Ack(message.msg_id, message.receipt))
        again = await mailbox.api.send(Send("orders", b"001" + b"." * 1, idem_key="i1"))

    assert seen == report["messages"] == SENT - 15 - lost
    assert again.duplicate


def test_ranges_join_neighbours() -> None:
    assert as_ranges([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]


async def test_third_failure_within_a_minute_shuts_the_gate(tmp_path: Path) -> None:
    from tests.services.mailbox.faulty_vfs import FaultyVfs

    vfs = FaultyVfs("three_failures")
    async with running(SqliteEngine(tmp_path, vfs=vfs.name, wal_bytes=WAL_BYTES), mailbox_options({})) as mailbox:
        for number in range(3):
            vfs.faults.failing_syncs = 1
            with pytest.raises(PenstockError):
                await mailbox.api.send(Send("orders", b"%d" % number))
            if number < 2:
                await mailbox.until_ready()
        await asyncio.sleep(30)

        assert not mailbox.state.ready
        assert "writer" in mailbox.inventory.health.verdict().missing
        vfs.faults.failing_syncs = 0
        await asyncio.sleep(60)
        assert mailbox.state.ready
