"""The log is copied into the database beside the commits; what a commit and a checkpoint promise stays the same."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import apsw
import pytest
from blake3 import blake3

from penstock.contracts.mailbox import Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.engines.engine import EngineFailed
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.engines.wal import read_log
from penstock.services.mailbox.ids import slot_of
from penstock.services.mailbox.rows import MessageRow, TopicRow
from penstock.testing import until
from tests.services.mailbox.power_vfs import Entry, PowerVfs, lose_power
from tests.services.mailbox.test_disk_faults import drain
from tests.services.mailbox.test_power_loss import check
from tests.services.mailbox.worlds import mailbox_options, running

WAL_BYTES = 1 << 20
FRAME_BYTES = 4096 + 24
_names = itertools.count()


class CopyVfs(PowerVfs):
    """Calls `on_copy` when a page of the database is written: only a copy of the log does that."""

    def __init__(self) -> None:
        self.on_copy: Callable[[], None] = lambda: None
        super().__init__(f"copy{next(_names)}")

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's name
        file = super().xOpen(name, flags)
        if file.path.endswith(".db"):
            write = file.xWrite

            def watched(data: bytes, offset: int) -> None:
                self.on_copy()
                write(data, offset)

            file.xWrite = watched
        return file

    @property
    def pages_copied(self) -> int:
        return sum(1 for entry in self.log if entry[0] == "write" and entry[1].endswith(".db") and entry[3] is not None)


class Sender:
    """Commits messages one by one, and notes what was answered."""

    def __init__(self, engine: SqliteEngine, vfs: PowerVfs) -> None:
        self.engine, self.vfs, self.seq = engine, vfs, 0

    def send(self, times: int = 1) -> None:
        for _ in range(times):
            self.seq += 1
            name = f"m{self.seq}"
            payload, batch = name.encode() + bytes(1000), Batch()
            if self.seq == 1:
                batch.topics.append(TopicRow(1, "orders"))
            digest = blake3(payload).digest()
            slot = slot_of("orders", None)
            batch.insert(MessageRow(self.seq, slot, 1, None, 1, None, 7, "c", None, {}, digest, payload))
            self.engine.commit(batch)
            self.vfs.note("stored", name)


@contextmanager
def opened(directory: Path) -> Iterator[Sender]:
    vfs = CopyVfs()
    engine = SqliteEngine(directory, wal_bytes=WAL_BYTES, vfs=vfs.name)
    engine.open(10)
    sender = Sender(engine, vfs)
    try:
        yield sender
    finally:
        vfs.on_copy = lambda: None
        engine.close()


def round_of(sender: Sender) -> tuple[int, int]:
    return read_log(Path(f"{sender.engine.path}-wal")).salts


def test_a_checkpoint_after_a_copy_writes_only_the_pages_that_came_since(tmp_path: Path) -> None:
    with opened(tmp_path) as sender:
        sender.send(30)
        sender.engine.copy_log()
        beside, before = sender.vfs.pages_copied, sender.engine.wal_bytes
        sender.send()
        came = (sender.engine.wal_bytes - before) // FRAME_BYTES
        assert sender.engine.checkpoint_due
        sender.engine.checkpoint()
        between = sender.vfs.pages_copied - beside

        assert between <= came < beside


def test_a_whole_copy_does_not_begin_the_log_anew_before_the_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path) as sender:
        sender.send(10)
        before = round_of(sender)
        sender.engine.copy_log()
        sender.send(2)
        assert round_of(sender) == before

        sender.engine.checkpoint()
        sender.send()
        assert round_of(sender) != before


def test_the_number_of_a_checkpoint_is_on_the_disk_before_the_record_says_it(tmp_path: Path) -> None:
    with opened(tmp_path) as sender:
        for count in range(1, 4):
            sender.send(5)
            sender.engine.copy_log()
            sender.send()
            sender.engine.checkpoint()
            with apsw.Connection(str(sender.engine.path)) as alone:
                stored = alone.execute("SELECT v FROM meta WHERE k = 'checkpoints'").get

            assert sender.engine.files._record.last.checkpoints == stored == count


def test_a_checkpoint_that_was_prepared_by_no_copy_numbers_itself(tmp_path: Path) -> None:
    with opened(tmp_path) as sender:
        sender.send(5)
        sender.engine.checkpoint()
        sender.send(5)
        sender.engine.copy_log()
        # No commit came after the copy: the checkpoint of a quiet moment follows.
        sender.engine.checkpoint()

        assert sender.engine.files._record.last.checkpoints == 2


def story(directory: Path) -> list[Entry]:
    """Commit at each page that is copied, beside the copy and in it; then go on, and copy again."""
    with opened(directory) as sender:
        for _ in range(3):
            sender.send(12)
            sender.vfs.on_copy = sender.send
            sender.engine.copy_log()
            sender.vfs.on_copy = lambda: None
            sender.send()
            sender.engine.checkpoint()
        return list(sender.vfs.log)


def lose_at_every_step(log: list[Entry], every: int) -> None:
    first = next(place for place, entry in enumerate(log) if entry[0] == "note")
    for at in range(first, len(log) + 1, every):
        for mode in ("none", "torn", "any"):
            check(log, at, lose_power(log, at, random.Random(at), mode))


def test_power_loss_at_any_step_of_a_copy_beside_commits_loses_no_answered_send(tmp_path: Path) -> None:
    log = story(tmp_path)
    copied = [place for place, entry in enumerate(log) if entry[0] == "write" and entry[1].endswith(".db")]
    noted = [place for place, entry in enumerate(log) if entry[0] == "note"]
    assert sum(copied[0] < place < copied[-1] for place in noted) > 30

    lose_at_every_step(log, 7)


def test_ledger_catches_a_log_that_begins_anew_over_pages_that_were_never_synced(tmp_path: Path) -> None:
    log = [entry for entry in story(tmp_path) if entry[0] != "sync" or not entry[1].endswith(".db")]

    with pytest.raises((AssertionError, PenstockError)):
        lose_at_every_step(log, 7)


@pytest.mark.parametrize("refused", ["checkpoint", "close"])
def test_nothing_is_built_on_a_copy_that_failed(tmp_path: Path, refused: str) -> None:
    with opened(tmp_path) as sender:
        sender.send(20)
        sender.vfs.failing_syncs = 1
        with pytest.raises(EngineFailed):
            sender.engine.copy_log()
        # The log is as good as before.
        sender.send()
        assert sender.engine.checkpoint_due
        before = sender.vfs.pages_copied
        with nullcontext() if refused == "close" else pytest.raises(EngineFailed):
            getattr(sender.engine, refused)()
        assert sender.vfs.pages_copied == before

        contents = sender.engine.open(10)
        assert sum(topic.plain for topic in contents.topics) == 21


def test_a_close_waits_for_the_copy_that_runs(tmp_path: Path) -> None:
    with opened(tmp_path) as sender:
        sender.send(10)
        begun, may_go_on = threading.Event(), threading.Event()

        def pause() -> None:
            begun.set()
            may_go_on.wait(10)

        sender.vfs.on_copy = pause
        copying = threading.Thread(target=sender.engine.copy_log)
        copying.start()
        begun.wait(10)
        sender.vfs.on_copy = lambda: None
        closing = threading.Thread(target=sender.engine.close)
        closing.start()
        may_go_on.set()
        copying.join(10)
        closing.join(10)

        # Closed in good order: nothing is left in the log.
        assert not Path(f"{sender.engine.path}-wal").exists()
        assert not sender.engine.files._record.last.in_use


class Watched(SqliteEngine):
    """Notes where the log is copied, and fails to copy it if it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, fsync=False, wal_bytes=256 << 10)
        self.copied_by: list[str] = []
        self.fails = False
        self.lives = 0

    def open(self, delays_max: int):
        self.lives += 1
        return super().open(delays_max)

    def copy_log(self) -> None:
        self.copied_by.append(threading.current_thread().name)
        if self.fails:
            self.fails, self._copier.failed = False, True
            raise EngineFailed("The log was not copied.", outcome="unknown")
        super().copy_log()


async def test_the_service_copies_the_log_on_a_thread_of_its_own(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        for number in range(200):
            await mailbox.api.send(Send("orders", b"%d" % number + bytes(2000)))

        assert len(engine.copied_by) > 1
        assert {name.rpartition("-")[0] for name in engine.copied_by} == {"mailbox_checkpoint"}


async def test_after_a_failed_copy_the_files_are_opened_anew_and_no_send_fails(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        engine.fails = True
        sent = 0
        while engine.fails:
            await mailbox.api.send(Send("orders", b"%d" % sent + bytes(2000)))
            sent += 1
        await until(lambda: engine.lives == 2 and mailbox.state.ready)
        await mailbox.api.send(Send("orders", b"after"))

        assert [payload.rstrip(b"\0") for payload in await drain(mailbox)] == [
            *(b"%d" % number for number in range(sent)),
            b"after",
        ]
