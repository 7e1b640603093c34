"""Files that were lost, emptied, zeroed, cut or swapped.

Never ready in silence, never written to, never called whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from penstock.contracts.mailbox import Ack, Recv, Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.engines.engine import Corrupt
from penstock.services.mailbox.engines.files import LogRecord, examine
from penstock.services.mailbox.engines.repair import look, repair
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.engines.wal import FRAME, HEADER, scan_log
from tests.services.mailbox.worlds import mailbox_options, running

WAL_BYTES = 1 << 20
CHECKPOINTED, LOGGED = 60, 20
FRAME_BYTES = FRAME.size + 4096


def engine(directory: Path) -> SqliteEngine:
    return SqliteEngine(directory, wal_bytes=WAL_BYTES, outer_mark=directory.with_name(f"{directory.name}.lived"))


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".db-shm" and path.is_file()}


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """Make the files of a life that was killed: some messages in the database, some sends and acks in the log alone."""
    home, copy = tmp_path / "home", tmp_path / "killed" / "mailbox"
    async with running(engine(home), mailbox_options({})) as mailbox:
        for number in range(CHECKPOINTED):
            await mailbox.api.send(Send("orders", b"%d" % number))
    shutil.copytree(home, tmp_path / "earlier")
    living = engine(home)
    async with running(living, mailbox_options({})) as mailbox:
        shutil.copy(home / "mailbox.db-wal", tmp_path / "earlier" / "mailbox.db-wal")
        got = (await mailbox.api.recv(Recv("orders", LOGGED, visibility_ms=60_000))).messages
        for message in got:
            assert (await mailbox.api.ack(Ack(message.msg_id, message.receipt))).ok
        for number in range(LOGGED):
            await mailbox.api.send(Send("orders", b"late %d" % number))
        shutil.copytree(home, copy)
    (copy / "mailbox.db-shm").unlink(missing_ok=True)
    return copy


def database(directory: Path) -> Path:
    return directory / "mailbox.db"


def log(directory: Path) -> Path:
    return directory / "mailbox.db-wal"


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def zero(path: Path, first: int, last: int | None = None) -> None:
    data = path.read_bytes()
    last = len(data) if last is None else last
    path.write_bytes(data[:first] + bytes(last - first) + data[last:])


def earlier(directory: Path, name: str) -> None:
    shutil.copy(directory.parents[1] / "earlier" / name, directory / name)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "log deleted": lambda home: log(home).unlink(),
    "log emptied": lambda home: log(home).write_bytes(b""),
    "log zeroed": lambda home: zero(log(home), 0),
    "log header zeroed": lambda home: zero(log(home), 0, HEADER.size),
    "log cut after one frame": lambda home: cut(log(home), HEADER.size + FRAME_BYTES),
    "log cut after twenty frames": lambda home: cut(log(home), HEADER.size + 20 * FRAME_BYTES),
    "log zeroed after twenty frames": lambda home: zero(log(home), HEADER.size + 20 * FRAME_BYTES),
    "log of an earlier moment": lambda home: earlier(home, "mailbox.db-wal"),
    "database deleted": lambda home: database(home).unlink(),
    "database emptied": lambda home: database(home).write_bytes(b""),
    "database zeroed": lambda home: zero(database(home), 0),
    "database cut to its first page": lambda home: cut(database(home), 4096),
    "database and log deleted": lambda home: (database(home).unlink(), log(home).unlink()),
    "database and log emptied": lambda home: (database(home).write_bytes(b""), log(home).write_bytes(b"")),
    "record flipped": lambda home: zero(home / "mailbox.record", 20, 24),
}


def test_undamaged_files_of_a_killed_life_are_whole(killed: Path) -> None:
    assert look(killed) == []
    opened = engine(killed).open(1000)

    assert sum(topic.plain for topic in opened.topics) == CHECKPOINTED


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_files_are_refused_and_left_as_they_are(killed: Path, how: str) -> None:
    DAMAGE[how](killed)
    before = files(killed)

    for _ in range(2):
        with pytest.raises(Corrupt):
            engine(killed).open(1000)
    assert files(killed) == before


@pytest.mark.parametrize("how", DAMAGE)
def test_check_finds_the_damage_and_changes_nothing(killed: Path, how: str) -> None:
    DAMAGE[how](killed)
    before = files(killed)

    assert look(killed)
    assert files(killed) == before


@pytest.mark.parametrize("how", [how for how in DAMAGE if how != "record flipped"])
def test_repair_never_says_that_nothing_is_lost(killed: Path, how: str) -> None:
    DAMAGE[how](killed)
    report = repair(killed)

    assert report.lost_unknown or report.lost
    assert (Path(report.kept_in) / "mailbox.record").exists()
    engine(killed).open(1000)


def test_repair_after_a_refused_start_still_has_the_log_of_an_emptied_database(killed: Path) -> None:
    whole = database(killed).read_bytes()
    database(killed).write_bytes(b"")
    with pytest.raises(Corrupt):
        engine(killed).open(1000)
    database(killed).write_bytes(whole)
    opened = engine(killed).open(1000)

    assert sum(topic.plain for topic in opened.topics) == CHECKPOINTED


def test_earlier_copy_of_the_database_is_told_from_the_last_one(killed: Path) -> None:
    living = engine(killed)
    living.open(1000)
    living.close()
    earlier(killed, "mailbox.db")

    with pytest.raises(Corrupt, match="earlier time"):
        engine(killed).open(1000)


def test_log_beside_a_database_that_was_closed_in_good_order_is_not_replayed(killed: Path) -> None:
    old = log(killed).read_bytes()
    living = engine(killed)
    living.open(1000)
    living.close()
    assert not log(killed).exists()
    log(killed).write_bytes(old)

    with pytest.raises(Corrupt, match="of another time"):
        engine(killed).open(1000)


def test_directory_that_is_gone_is_not_made_anew(killed: Path) -> None:
    living = engine(killed)
    living.open(1000)
    living.close()
    shutil.rmtree(killed)

    with pytest.raises(Corrupt, match="is gone"):
        engine(killed).open(1000)
    assert not killed.exists()


@pytest.mark.parametrize(
    "vanish",
    [
        lambda home: database(home).unlink(),
        lambda home: log(home).unlink(),
        lambda home: home.rename(home.with_name("elsewhere")),
        shutil.rmtree,
    ],
    ids=["database unlinked", "log unlinked", "directory moved", "directory removed"],
)
async def test_nothing_is_acknowledged_into_files_that_vanished(
    tmp_path: Path, vanish: Callable[[Path], object]
) -> None:
    home = tmp_path / "mailbox"
    async with running(engine(home), mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"before"))
        vanish(home)

        for _ in range(3):
            with pytest.raises(PenstockError):
                await mailbox.api.send(Send("orders", b"after"))
    assert not database(home).exists() or database(home).stat().st_size


def test_record_survives_its_own_writing() -> None:
    record = LogRecord(
        in_use=True, salts=(1, 2), frames=3, life=4, checkpoints=5, wall_ms=6, uptime_ms=7, machine=b"m" * 16
    )

    assert LogRecord.unpack(record.pack()) == record
    assert LogRecord.unpack(record.pack()[:-1]) is None
    assert LogRecord.unpack(bytes(len(record.pack()))) is None


async def test_log_of_an_earlier_round_is_told_from_the_last_one(tmp_path: Path) -> None:
    home, copy = tmp_path / "mailbox", tmp_path / "killed"
    living = SqliteEngine(home, wal_bytes=128 << 10)
    async with running(living, mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"first round"))
        old, checkpoints = log(home).read_bytes(), living.checkpoints
        while living.checkpoints == checkpoints:
            await mailbox.api.send(Send("orders", bytes(4000)))
        await mailbox.api.send(Send("orders", b"second round"))
        shutil.copytree(home, copy)
    assert examine(copy).damage == ""
    log(copy).write_bytes(old)

    with pytest.raises(Corrupt, match="earlier time"):
        SqliteEngine(copy, wal_bytes=128 << 10).open(1000)


def last_commits(data: bytes) -> list[int]:
    """Name the frames that end a commit of the log's last round, in order."""
    salts = HEADER.unpack_from(data)[4:6]
    frames = range((len(data) - HEADER.size) // FRAME_BYTES)
    heads = [FRAME.unpack_from(data, HEADER.size + number * FRAME_BYTES) for number in frames]
    return [number for number in frames if heads[number][1] and heads[number][2:4] == salts]


def test_flipped_salt_of_the_second_last_commit_is_damage_and_a_stale_frame_is_not(killed: Path) -> None:
    data = bytearray(log(killed).read_bytes())
    second_last = HEADER.size + last_commits(bytes(data))[-2] * FRAME_BYTES
    flipped, stale = bytearray(data), bytearray(data)
    flipped[second_last + 8] ^= 1
    stale[second_last + 8 : second_last + 16] = b"earlier!"

    assert scan_log(bytes(flipped)).damaged is not None
    assert scan_log(bytes(stale)).damaged is None


async def test_a_log_that_a_reader_kept_from_being_copied_whole_is_still_missed_when_it_is_lost(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "killed" / "mailbox"
    living = engine(home)
    async with running(living, mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"early"))
        # By the same library as the engine: locks are of a process, and two libraries in one would not see each other.
        with closing(apsw.Connection(str(database(home)), flags=apsw.SQLITE_OPEN_READONLY)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM meta").fetchall()
            for number in range(LOGGED):
                await mailbox.api.send(Send("orders", b"late %d" % number))
            used = living.wal_bytes
            living.checkpoint()

            # What the reader does not see yet stays in the log alone, and the log is not called empty.
            assert living.wal_bytes >= used > 0
            shutil.copytree(home, copy)
    (copy / "mailbox.db-shm").unlink(missing_ok=True)
    log(copy).unlink()

    with pytest.raises(Corrupt):
        engine(copy).open(100)
